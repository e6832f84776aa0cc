// wait.cc: how a wait begins and ends. Ending only makes the task ready: it goes on from the loop,
// never from inside whatever woke it.
#include "platform/base/wait.h"

namespace ff {

bool Wait::suspend(std::coroutine_handle<> task, Cancel* cancel) {
  cancel_ = cancel;
  if (cancel_ != nullptr && cancel_->requested()) {
    cancelled_ = true;
    return false;
  }
  if (!enlist()) return false;
  task_ = task;
  if (cancel_ != nullptr) cancel_->add(*this);
  return true;
}

void Wait::fire() {
  delist();
  Cancel::Hook::unlink();
  task_.resume();
}

void Wait::on_cancel() {
  cancelled_ = true;
  delist();
  end();
}

Result<void> Wait::await_resume() {
  if (cancelled_) return cancel_->reason();
  return {};
}

bool SleepWait::enlist() {
  if (until_ns_ <= loop().now_ns()) return false;
  timer_.set(until_ns_, ready());
  return true;
}

bool Event::EventWait::enlist() {
  met_ = event_.set_;
  if (met_) return false;
  event_.waits_.push_back(*this);
  if (until_ns_ != INT64_MAX) timer_.set(until_ns_, ready());
  return true;
}

void Event::EventWait::delist() {
  ListLink<EventWait>::unlink();
  timer_.stop();
}

Result<void> Event::EventWait::await_resume() {
  FF_TRY(Wait::await_resume());
  if (!met_) return fail(Errc::deadline, "nothing happened in time");
  return {};
}

void Event::set() {
  set_ = true;
  while (!waits_.empty()) {
    EventWait& wait = waits_.pop_front();
    wait.met_ = true;
    wait.end();
  }
}

Task<void> poll_until(Loop& loop, std::function<bool()> condition) {
  constexpr int64_t kLookNs = 50 * kMillisecond;
  for (;;) {
    if (condition()) co_return;
    const auto waited = co_await after(loop, kLookNs);
    if (!waited) co_return;
  }
}

class Semaphore::TakeWait final : public Wait, public ListLink<TakeWait> {
 public:
  TakeWait(Semaphore& semaphore, size_t units)
      : Wait(semaphore.loop_), semaphore_(semaphore), units_(units) {}

  ~TakeWait() {
    if (served_) semaphore_.give(units_);  // the task was destroyed before it could go on
  }
  size_t units() const { return units_; }
  void serve() {
    served_ = true;
    end();
  }
  // What was served, also when a cancellation came in between.
  Hold hold() {
    if (!std::exchange(served_, false)) return {};
    return {semaphore_, units_};
  }

 private:
  bool enlist() override {
    semaphore_.waits_.push_back(*this);
    semaphore_.waiting_++;
    return true;
  }
  void delist() override {
    if (!ListLink<TakeWait>::linked()) return;
    ListLink<TakeWait>::unlink();
    semaphore_.waiting_--;
    semaphore_.serve();
  }

  Semaphore& semaphore_;
  size_t units_;
  bool served_ = false;
};

Semaphore::Semaphore(Loop& loop, size_t units) : loop_(loop), free_(units) {}

Semaphore::~Semaphore() = default;

std::optional<Semaphore::Hold> Semaphore::try_take(size_t units) {
  if (!waits_.empty() || free_ < units) return std::nullopt;
  free_ -= units;
  return Hold(*this, units);
}

Task<Result<Semaphore::Hold>> Semaphore::take(size_t units) {
  if (auto hold = try_take(units)) co_return std::move(*hold);
  TakeWait wait(*this, units);
  auto waited = co_await wait;
  auto hold = wait.hold();
  if (!waited) co_return std::move(waited).error();
  co_return hold;
}

void Semaphore::give(size_t units) {
  free_ += units;
  serve();
}

void Semaphore::serve() {
  while (!waits_.empty() && waits_.front().units() <= free_) {
    TakeWait& next = waits_.pop_front();
    waiting_--;
    free_ -= next.units();
    next.serve();
  }
}

}  // namespace ff
