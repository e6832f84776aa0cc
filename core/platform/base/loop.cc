// loop.cc: the order in which a loop fires. Posted functions first (they come from outside), then
// what pollers find, due timers, then the ready list, with what the turn before has left for this
// one at its end, and the late list last.
#include "platform/base/loop.h"

#include <utility>

#include "platform/base/check.h"

namespace ff {

namespace {

// One turn fires at most this many that are not late, so that the answers of many tasks leave, and
// new work is looked for, while the rest still runs: peers and disks do not wait for all of them.
constexpr size_t kTurnMax = 64;

}  // namespace

void Timer::set(int64_t at_ns, Ready& ready) {
  stop();
  ready_ = &ready;
  place_ = loop_.timers_.emplace(at_ns, this);
}

void Timer::stop() {
  if (ready_ == nullptr) return;
  loop_.timers_.erase(place_);
  ready_ = nullptr;
}

void Loop::wake(Ready& ready) {
  if (!ready.linked()) ready_.push_back(ready);
}

void Loop::wake_late(Ready& ready) {
  if (!ready.linked()) late_.push_back(ready);
}

void Loop::wake_next(Ready& ready) {
  if (!ready.linked()) next_.push_back(ready);
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

// Each once, in order; a poller may take out itself or others.
void Loop::ask_pollers() {
  IntrusiveList<Poller> asked;
  while (!pollers_.empty()) {
    Poller& next = pollers_.pop_front();
    asked.push_back(next);
    next.poll();
  }
  while (!asked.empty()) pollers_.push_back(asked.pop_front());
}

bool Loop::fire_timers() {
  if (timers_.empty()) return false;
  const int64_t now = now_ns();
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Timer* const timer = timers_.begin()->second;
    Ready& ready = *timer->ready_;
    timer->stop();
    wake(ready);
    fired = true;
  }
  return fired;
}

bool Loop::turn() {
  bool fired = run_posted();
  ask_pollers();
  fired |= fire_timers();
  while (!next_.empty()) ready_.push_back(next_.pop_front());
  const auto fire_some = [&fired](IntrusiveList<Ready>& list) {
    for (size_t i = 0; i < kTurnMax && !list.empty(); i++) {
      list.pop_front().fire();
      fired = true;
    }
  };
  fire_some(ready_);
  fire_some(late_);
  return fired;
}

bool Loop::busy() {
  if (!ready_.empty() || !late_.empty() || !next_.empty() || !pollers_.empty()) return true;
  const std::lock_guard lock(posted_mutex_);
  return !posted_.empty();
}

std::optional<int64_t> Loop::next_timer_ns() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

bool Loop::take_stop() { return std::exchange(stopped_, false); }

}  // namespace ff
