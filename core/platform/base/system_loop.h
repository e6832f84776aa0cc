// SystemLoop: the event loop on a real machine. epoll waits for descriptors and timers, an eventfd
// for posts from other threads. One thread runs one loop; a multi-core daemon runs one loop per
// thread.
#pragma once

#include <cstdint>
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
  // The same for a descriptor that several loops watch, all by this call: an event wakes one loop
  // that sleeps, the one that watches longest, and a loop that is awake finds it later. It tells
  // only when the descriptor becomes readable, and arm_writable() must not be called. After its
  // destruction read once more: the last event may have been for this loop.
  Result<std::unique_ptr<FdWatch>> watch_shared(int fd);
  void run() override;

  // Null: epoll waits. `waiter` outlives its use.
  void set_waiter(LoopWaiter* waiter) { waiter_ = waiter; }
  // Readable while a watched descriptor has an event or post() was called.
  int epoll_fd() const { return epoll_; }

 private:
  class Watch;
  Result<std::unique_ptr<FdWatch>> watch_for(int fd, uint32_t events);
  void interrupt() override;
  void poll(int64_t until_ns);
  bool take_events(int timeout_ms);

  int epoll_;
  int event_;  // readable after interrupt()
  LoopWaiter* waiter_ = nullptr;
};

}  // namespace ff
