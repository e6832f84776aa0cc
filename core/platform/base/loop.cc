// loop.cc: the order of one turn. Posted functions run first (they come from other threads), then
// pollers, due timers and the run queue (with runnables of wake_next_turn() at its end), and last
// the runnables of wake_at_turn_end().
#include "platform/base/loop.h"

#include <utility>

#include "platform/base/check.h"

namespace ff {

namespace {

// A turn runs at most this many runnables of a list, so that replies are sent and new work is
// polled for while many tasks are runnable: peers and disks do not wait for all of them.
constexpr size_t kTurnMax = 64;

}  // namespace

void Timer::set(int64_t at_ns, Runnable& runnable) {
  stop();
  runnable_ = &runnable;
  place_ = loop_.timers_.emplace(at_ns, this);
}

void Timer::stop() {
  if (runnable_ == nullptr) return;
  loop_.timers_.erase(place_);
  runnable_ = nullptr;
}

void Loop::wake(Runnable& runnable) {
  if (!runnable.linked()) run_queue_.push_back(runnable);
}

void Loop::wake_at_turn_end(Runnable& runnable) {
  if (!runnable.linked()) turn_end_.push_back(runnable);
}

void Loop::wake_next_turn(Runnable& runnable) {
  if (!runnable.linked()) next_turn_.push_back(runnable);
}

void Loop::post(std::function<void()> function) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(function));
  }
  interrupt();
}

bool Loop::run_posted() {
  std::vector<std::function<void()>> functions;
  {
    const std::lock_guard lock(posted_mutex_);
    functions.swap(posted_);
  }
  for (const auto& function : functions) function();
  return !functions.empty();
}

// Calls each poller once, in order; a poller may remove itself or others.
void Loop::run_pollers() {
  IntrusiveList<Poller> asked;
  while (!pollers_.empty()) {
    Poller& next = pollers_.pop_front();
    asked.push_back(next);
    next.poll();
  }
  while (!asked.empty()) pollers_.push_back(asked.pop_front());
}

bool Loop::wake_due_timers() {
  if (timers_.empty()) return false;
  const int64_t now = now_ns();
  bool ran = false;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Timer* const timer = timers_.begin()->second;
    Runnable& runnable = *timer->runnable_;
    timer->stop();
    wake(runnable);
    ran = true;
  }
  return ran;
}

bool Loop::turn() {
  bool ran = run_posted();
  run_pollers();
  ran |= wake_due_timers();
  while (!next_turn_.empty()) run_queue_.push_back(next_turn_.pop_front());
  const auto run_some = [&ran](IntrusiveList<Runnable>& list) {
    for (size_t i = 0; i < kTurnMax && !list.empty(); i++) {
      list.pop_front().on_wake();
      ran = true;
    }
  };
  run_some(run_queue_);
  run_some(turn_end_);
  return ran;
}

bool Loop::has_work() {
  if (!run_queue_.empty() || !turn_end_.empty() || !next_turn_.empty() || !pollers_.empty())
    return true;
  const std::lock_guard lock(posted_mutex_);
  return !posted_.empty();
}

std::optional<int64_t> Loop::next_timer_ns() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

bool Loop::consume_stop() { return std::exchange(stopped_, false); }

}  // namespace ff
