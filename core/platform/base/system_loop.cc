// system_loop.cc: one epoll_wait per turn. Descriptors are registered once, edge-triggered, so that
// waiting for input needs no system call. Waiting for output is rare and needs one.
#include "platform/base/system_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "platform/base/check.h"

namespace ff {

class SystemLoop::Watch final : public FdWatch {
 public:
  Watch(SystemLoop& loop, int fd) : FdWatch(loop), loop_(loop), fd_(fd) {
    readable.set();
    writable.set();
  }
  ~Watch() override { ::epoll_ctl(loop_.epoll_, EPOLL_CTL_DEL, fd_, nullptr); }

  void arm_writable() override {
    writable.reset();
    armed_ = true;
    watch_for(kReading | EPOLLOUT);
  }

  void notify(uint32_t events) {
    constexpr uint32_t kBroken = EPOLLHUP | EPOLLERR;
    if ((events & (EPOLLRDHUP | kBroken)) != 0) hung_up = true;
    if ((events & (EPOLLIN | EPOLLRDHUP | kBroken)) != 0) readable.set();
    if ((events & (EPOLLOUT | kBroken)) == 0) return;
    writable.set();
    // Each change makes epoll report a hang-up again.
    if (std::exchange(armed_, false)) watch_for(kReading);
  }

  // The events of the initial registration.
  static constexpr uint32_t kReading = EPOLLIN | EPOLLRDHUP | EPOLLET;

 private:
  void watch_for(uint32_t events) {
    epoll_event event{.events = events, .data = {}};
    event.data.ptr = this;
    FF_CHECK(::epoll_ctl(loop_.epoll_, EPOLL_CTL_MOD, fd_, &event) == 0);
  }

  SystemLoop& loop_;
  int fd_;
  bool armed_ = false;  // for EPOLLOUT
};

SystemLoop::SystemLoop(Clock& clock)
    : Loop(clock),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  FF_CHECK(epoll_ >= 0 && event_ >= 0);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
  FF_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event) == 0);
}

SystemLoop::~SystemLoop() {
  ::close(event_);
  ::close(epoll_);
}

Result<std::unique_ptr<FdWatch>> SystemLoop::watch(int fd) {
  return watch_for(fd, Watch::kReading);
}

Result<std::unique_ptr<FdWatch>> SystemLoop::watch_shared(int fd) {
  return watch_for(fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE);
}

Result<std::unique_ptr<FdWatch>> SystemLoop::watch_for(int fd, uint32_t events) {
  auto watch = std::make_unique<Watch>(*this, fd);
  epoll_event event{.events = events, .data = {}};
  event.data.ptr = watch.get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return errno_error(errno, "epoll");
  return std::unique_ptr<FdWatch>(std::move(watch));
}

void SystemLoop::interrupt() {
  const uint64_t one = 1;
  // The write fails only when the counter is full, which means that a wake-up is already pending.
  [[maybe_unused]] const ssize_t written = ::write(event_, &one, sizeof one);
}

void SystemLoop::run() {
  for (;;) {
    turn();
    if (consume_stop()) return;
    poll(has_work() ? 0 : next_timer_ns().value_or(INT64_MAX));
  }
}

// Waits for descriptors until `until_ns`. No task runs in here, so every notified Watch is alive.
void SystemLoop::poll(int64_t until_ns) {
  int timeout_ms = -1;
  if (until_ns != INT64_MAX) {
    // Rounded up: otherwise the loop would spin for the last fraction of a millisecond.
    const int64_t left =
        (std::max<int64_t>(until_ns - now_ns(), 0) + kMillisecond - 1) / kMillisecond;
    timeout_ms = static_cast<int>(std::min<int64_t>(left, INT32_MAX));
  }
  if (waiter_ == nullptr) {
    take_events(timeout_ms);
  } else if (waiter_->wait(timeout_ms)) {
    while (take_events(0)) {
    }  // the waiter does not report the remaining ones again
  }
}

// Returns whether there may be more.
bool SystemLoop::take_events(int timeout_ms) {
  std::array<epoll_event, 128> events;
  const int count =
      ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
  FF_CHECK(count >= 0 || errno == EINTR);
  for (int i = 0; i < count; i++) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.ptr != nullptr) {
      static_cast<Watch*>(event.data.ptr)->notify(event.events);
    } else {
      uint64_t posts = 0;
      [[maybe_unused]] const ssize_t got = ::read(event_, &posts, sizeof posts);
    }
  }
  return count == static_cast<int>(events.size());
}

}  // namespace ff
