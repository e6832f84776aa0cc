// Sends cache invalidations to the kernel (FUSE_NOTIFY_INVAL_INODE). The kernel may first wait for
// pages in use and for requests that it sends meanwhile, so a separate thread sends them.
#pragma once

#include <cstdint>
#include <functional>

#include "platform/base/loop.h"
#include "platform/base/worker_thread.h"

namespace ff::mount {

class KernelNotifier {
 public:
  // `fd`: /dev/fuse, which outlives it.
  KernelNotifier(Loop& loop, int fd) : loop_(loop), fd_(fd) {}

  // `done` runs on the loop. Offset -1: attributes only; size 0: to the end of the file.
  void invalidate_inode(uint64_t nodeid, int64_t offset, int64_t size, std::function<void()> done);

 private:
  Loop& loop_;
  const int fd_;
  // Its destructor waits for the running notification and drops queued ones.
  WorkerThread thread_;
};

// Sends one notification from the calling thread.
void notify_inval_inode(int fd, uint64_t nodeid, int64_t offset, int64_t size);

}  // namespace ff::mount
