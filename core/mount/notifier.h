// Tells the kernel what to forget. The kernel may have to wait for pages that programs are using,
// and for requests that it sends meanwhile: so a thread of its own does the telling.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/loop.h"

namespace ff::mount {

class Notifier {
 public:
  // `fd`: the device, which outlives it.
  Notifier(Loop& loop, int fd);
  // Waits for what is under way; what has not begun is dropped.
  ~Notifier();

  // `done` runs in the loop. Offset -1: attributes alone; size 0: to the end of the file.
  void forget(uint64_t node, int64_t offset, int64_t size, std::function<void()> done);

 private:
  struct Order {
    uint64_t node = 0;
    int64_t offset = 0;
    int64_t size = 0;
    std::function<void()> done;
  };
  void run();

  Loop& loop_;
  const int fd_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Order> orders_;
  bool ended_ = false;
  std::thread thread_;
};

// One notification, in the calling thread.
void tell_forget(int fd, uint64_t node, int64_t offset, int64_t size);

}  // namespace ff::mount
