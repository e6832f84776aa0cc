// wait.cc: starting and completing waits. Completion only wakes the task: the loop resumes it
// later, never from inside the code that completed the wait.
#include "platform/base/wait.h"

namespace ff {

bool Wait::suspend(std::coroutine_handle<> task, CancellationToken* cancel) {
  cancel_ = cancel;
  if (cancel_ != nullptr && cancel_->requested()) {
    cancelled_ = true;
    return false;
  }
  if (!arm()) return false;
  task_ = task;
  if (cancel_ != nullptr) cancel_->add(*this);
  return true;
}

void Wait::on_wake() {
  disarm();
  CancellationToken::Hook::unlink();
  task_.resume();
}

void Wait::on_cancel() {
  cancelled_ = true;
  disarm();
  complete();
}

Result<void> Wait::await_resume() {
  if (cancelled_) return cancel_->reason();
  return {};
}

bool SleepWait::arm() {
  if (until_ns_ <= loop().now_ns()) return false;
  timer_.set(until_ns_, runnable());
  return true;
}

bool Event::EventWait::arm() {
  was_set_ = event_.set_;
  if (was_set_) return false;
  event_.waits_.push_back(*this);
  if (until_ns_ != INT64_MAX) timer_.set(until_ns_, runnable());
  return true;
}

void Event::EventWait::disarm() {
  ListLink<EventWait>::unlink();
  timer_.stop();
}

Result<void> Event::EventWait::await_resume() {
  FF_TRY(Wait::await_resume());
  if (!was_set_) return fail(Errc::deadline, "timed out");
  return {};
}

void Event::set() {
  set_ = true;
  while (!waits_.empty()) {
    EventWait& wait = waits_.pop_front();
    wait.was_set_ = true;
    wait.complete();
  }
}

Task<void> poll_until(Loop& loop, std::function<bool()> condition) {
  constexpr int64_t kPollNs = 50 * kMillisecond;
  for (;;) {
    if (condition()) co_return;
    const auto waited = co_await sleep_for(loop, kPollNs);
    if (!waited) co_return;
  }
}

class Semaphore::AcquireWait final : public Wait, public ListLink<AcquireWait> {
 public:
  AcquireWait(Semaphore& semaphore, size_t units)
      : Wait(semaphore.loop_), semaphore_(semaphore), units_(units) {}

  ~AcquireWait() {
    if (granted_) semaphore_.release(units_);  // the task was destroyed before it could resume
  }
  size_t units() const { return units_; }
  void grant() {
    granted_ = true;
    complete();
  }
  // The granted units, also when the task was cancelled after the grant.
  Permit permit() {
    if (!std::exchange(granted_, false)) return {};
    return {semaphore_, units_};
  }

 private:
  bool arm() override {
    semaphore_.waits_.push_back(*this);
    semaphore_.waiting_++;
    return true;
  }
  void disarm() override {
    if (!ListLink<AcquireWait>::linked()) return;
    ListLink<AcquireWait>::unlink();
    semaphore_.waiting_--;
    semaphore_.grant();
  }

  Semaphore& semaphore_;
  size_t units_;
  bool granted_ = false;
};

Semaphore::Semaphore(Loop& loop, size_t units) : loop_(loop), free_(units) {}

Semaphore::~Semaphore() = default;

std::optional<Semaphore::Permit> Semaphore::try_acquire(size_t units) {
  if (!waits_.empty() || free_ < units) return std::nullopt;
  free_ -= units;
  return Permit(*this, units);
}

Task<Result<Semaphore::Permit>> Semaphore::acquire(size_t units) {
  if (auto permit = try_acquire(units)) co_return std::move(*permit);
  AcquireWait wait(*this, units);
  auto waited = co_await wait;
  auto permit = wait.permit();
  if (!waited) co_return std::move(waited).error();
  co_return permit;
}

void Semaphore::release(size_t units) {
  free_ += units;
  grant();
}

void Semaphore::grant() {
  while (!waits_.empty() && waits_.front().units() <= free_) {
    AcquireWait& next = waits_.pop_front();
    waiting_--;
    free_ -= next.units();
    next.grant();
  }
}

}  // namespace ff
