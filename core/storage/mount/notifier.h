// Tells the kernel what to forget. The kernel may have to wait for pages that programs are using,
// and for requests that it sends meanwhile: so a thread of its own does the telling.
#pragma once

#include <cstdint>
#include <functional>

#include "platform/base/loop.h"
#include "platform/base/side_thread.h"

namespace ff::mount {

class Notifier {
 public:
  // `fd`: the device, which outlives it.
  Notifier(Loop& loop, int fd) : loop_(loop), fd_(fd) {}

  // `done` runs in the loop. Offset -1: attributes alone; size 0: to the end of the file.
  void forget(uint64_t node, int64_t offset, int64_t size, std::function<void()> done);

 private:
  Loop& loop_;
  const int fd_;
  // At the end it waits for what is under way; what has not begun is dropped.
  SideThread thread_;
};

// One notification, in the calling thread.
void tell_forget(int fd, uint64_t node, int64_t offset, int64_t size);

}  // namespace ff::mount
