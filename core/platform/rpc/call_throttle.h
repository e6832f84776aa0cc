// The throttle of a server's calls: which call of a user (auth/entity.h) may run now. A user with a
// fifth of all calls in flight costs others a fifth of the server; the calls beyond that wait, so
// that a hostile or broken client of one user does not slow down the others. Owned by one loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "platform/base/metrics.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::rpc {

class CallThrottle {
 public:
  // Both outlive it. `user_calls_max`: calls of one user that run at a time, at most.
  CallThrottle(Loop& loop, Metrics& metrics, size_t user_calls_max)
      : loop_(loop), metrics_(metrics), user_calls_max_(user_calls_max) {}

  // A call may run, and runs until this is destroyed.
  class [[nodiscard]] Permit;
  // Of a node, a mount or an operator: at once.
  Permit begin();
  // Waits until at most a quarter as many calls of the user run as others have in flight, at least
  // one, at most `user_calls_max`.
  Task<Result<Permit>> begin_of_user(std::string user);

 private:
  struct Waiter {
    explicit Waiter(Loop& loop) : wake(loop) {}
    Event wake;
    bool granted = false;
  };
  struct User {
    size_t in_flight = 0;
    size_t running = 0;
    std::list<Waiter> waiting;
    // The most calls of others in flight, in this period and the one before: between two calls of
    // an honest client there is none.
    std::array<size_t, 2> others = {};
    int64_t period = 0;
  };
  void observe_others(User& user);
  bool may_run(const User& user) const;
  void grant(User& user);
  void leave(User& user);
  void end(User* user);

  Loop& loop_;
  Metrics& metrics_;
  const size_t user_calls_max_;
  size_t in_flight_ = 0;
  std::map<std::string, User> users_;  // kept: users are few
};

class CallThrottle::Permit {
 public:
  Permit() = default;
  Permit(Permit&& other) noexcept
      : throttle_(std::exchange(other.throttle_, nullptr)), user_(other.user_) {}
  Permit& operator=(Permit&& other) noexcept {
    std::swap(throttle_, other.throttle_);
    std::swap(user_, other.user_);
    return *this;
  }
  ~Permit() {
    if (throttle_ != nullptr) throttle_->end(user_);
  }

 private:
  friend class CallThrottle;
  Permit(CallThrottle& throttle, User* user) : throttle_(&throttle), user_(user) {}

  CallThrottle* throttle_ = nullptr;
  User* user_ = nullptr;  // null: not of a user
};

}  // namespace ff::rpc
