// SystemLoop: the event loop on a real machine. epoll waits for descriptors and timers, an eventfd
// for posts from other threads. One thread runs one loop; a multi-core daemon runs one loop per
// thread.
#pragma once

#include <memory>

#include "platform/base/fd_watch.h"
#include "platform/base/loop.h"

namespace ff {

// Sleeps in place of epoll, for a loop that waits for more than descriptors.
class LoopWaiter {
 public:
  // Waits until its own work arrives, epoll_fd() of the loop becomes readable or the time is over.
  // `timeout_ms` 0: does not wait; -1: no time limit. Returns whether epoll_fd() may be readable.
  // Wakes runnables, and runs none.
  virtual bool wait(int timeout_ms) = 0;

 protected:
  ~LoopWaiter() = default;
};

class SystemLoop final : public Loop {
 public:
  // Aborts when the process is out of file descriptors.
  explicit SystemLoop(Clock& clock);
  ~SystemLoop() override;

  Result<std::unique_ptr<FdWatch>> watch(int fd) override;
  void run() override;

  // Null: epoll waits. `waiter` outlives its use.
  void set_waiter(LoopWaiter* waiter) { waiter_ = waiter; }
  // Readable while a watched descriptor has an event or post() was called.
  int epoll_fd() const { return epoll_; }

 private:
  class Watch;
  void interrupt() override;
  void poll(int64_t until_ns);
  bool take_events(int timeout_ms);

  int epoll_;
  int event_;  // readable after interrupt()
  LoopWaiter* waiter_ = nullptr;
};

}  // namespace ff
