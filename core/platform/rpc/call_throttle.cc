// call_throttle.cc: counts calls in flight, and lets those of users run as their share allows.
#include "platform/rpc/call_throttle.h"

#include <algorithm>

#include "platform/base/clock.h"

namespace ff::rpc {

namespace {

// How long calls of others count after their end.
constexpr int64_t kPeriodNs = 100 * kMillisecond;
// Calls of others in flight beside which one call of a user runs: a fifth is the user's.
constexpr size_t kOthersACall = 4;

}  // namespace

CallThrottle::Permit CallThrottle::begin() {
  in_flight_++;
  return {*this, nullptr};
}

Task<Result<CallThrottle::Permit>> CallThrottle::begin_of_user(std::string name) {
  User& user = users_[name];
  in_flight_++;
  user.in_flight++;
  observe_others(user);
  if (user.waiting.empty() && may_run(user)) {
    user.running++;
    co_return Permit(*this, &user);
  }
  metrics_
      .counter("ff_held_back_total", "Waits of entities that held their whole share",
               {{"what", "calls"}, {"entity", name}})
      .add();
  const auto mine = user.waiting.emplace(user.waiting.end(), loop_);
  const auto waited = co_await mine->wake.wait();
  const bool granted = mine->granted;
  user.waiting.erase(mine);
  Permit permit;
  if (granted) {
    permit = Permit(*this, &user);
  } else {
    leave(user);
  }
  FF_CO_TRY(waited);
  co_return permit;
}

void CallThrottle::observe_others(User& user) {
  const int64_t period = loop_.now_ns() / kPeriodNs;
  if (period > user.period) {
    user.others = {0, period == user.period + 1 ? user.others[0] : 0};
    user.period = period;
  }
  user.others[0] = std::max(user.others[0], in_flight_ - user.in_flight);
}

bool CallThrottle::may_run(const User& user) const {
  const size_t others = std::max(user.others[0], user.others[1]);
  if (others == 0) return user.running < user_calls_max_;
  return user.running < std::clamp(others / kOthersACall, size_t{1}, user_calls_max_);
}

// Calls with a permit stay in the list until their tasks run.
void CallThrottle::grant(User& user) {
  for (Waiter& waiter : user.waiting) {
    if (waiter.granted) continue;
    if (!may_run(user)) return;
    waiter.granted = true;
    user.running++;
    waiter.wake.set();
  }
}

void CallThrottle::leave(User& user) {
  in_flight_--;
  user.in_flight--;
}

void CallThrottle::end(User* user) {
  if (user == nullptr) {
    in_flight_--;
    return;
  }
  leave(*user);
  user->running--;
  observe_others(*user);
  grant(*user);
}

}  // namespace ff::rpc
