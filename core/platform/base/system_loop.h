// SystemLoop: the event loop on a real machine. epoll waits for descriptors and timers, an eventfd
// for posts from other threads. One thread runs one loop; a multi-core daemon runs one loop per
// thread.
#pragma once

#include <memory>

#include "platform/base/fd_watch.h"
#include "platform/base/loop.h"

namespace ff {

class SystemLoop final : public Loop {
 public:
  // Aborts when the process is out of file descriptors.
  explicit SystemLoop(Clock& clock);
  ~SystemLoop() override;

  Result<std::unique_ptr<FdWatch>> watch(int fd) override;
  void run() override;

 private:
  class Watch;
  void interrupt() override;
  void poll(int64_t until_ns);

  int epoll_;
  int event_;  // readable after interrupt()
};

}  // namespace ff
