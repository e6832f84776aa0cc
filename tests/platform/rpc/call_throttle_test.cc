// Which calls of users run beside those of others.
#include "platform/rpc/call_throttle.h"

#include <gtest/gtest.h>

#include <list>
#include <optional>

#include "platform/base/gate.h"
#include "platform/sim/sim_world.h"

namespace ff::rpc {
namespace {

class CallThrottleTest : public testing::Test {
 protected:
  using Asked = std::optional<Result<CallThrottle::Permit>>;

  static Task<void> ask(CallThrottle& throttle, std::string user, Asked& into) {
    into = co_await throttle.begin_of_user(std::move(user));
  }
  // Asks for `count` permits; those that run are set in `calls`.
  void ask_for(const std::string& user, size_t count, std::list<Asked>& calls) {
    for (size_t i = 0; i < count; i++) gate_.spawn(ask(throttle_, user, calls.emplace_back()));
    settle();
  }
  void settle() { world_.run_for(kMillisecond); }
  // Ends every call that runs; the number of them.
  size_t finish(std::list<Asked>& calls) {
    const size_t ended = std::erase_if(calls, [](const Asked& one) { return one.has_value(); });
    settle();
    return ended;
  }
  static size_t running(const std::list<Asked>& calls) {
    size_t count = 0;
    for (const Asked& one : calls) count += one.has_value() && one->ok();
    return count;
  }

  sim::SimWorld world_;
  Loop& loop_ = world_.loop();
  Metrics metrics_;
  CallThrottle throttle_{loop_, metrics_, 16};
  std::list<Asked> eve_, bob_;
  std::list<CallThrottle::Permit> nodes_;
  Gate gate_{loop_};
};

TEST_F(CallThrottleTest, AUserAloneRunsASetNumber) {
  ask_for("user/eve", 100, eve_);
  EXPECT_EQ(running(eve_), 16u);
  size_t ended = 0;
  while (!eve_.empty()) ended += finish(eve_);
  EXPECT_EQ(ended, 100u);
}

TEST_F(CallThrottleTest, AUserRunsAQuarterOfWhatOthersHaveInFlight) {
  for (int i = 0; i < 40; i++) nodes_.push_back(throttle_.begin());
  ask_for("user/eve", 1000, eve_);
  EXPECT_EQ(running(eve_), 10u);
  nodes_.resize(8);
  world_.run_for(kSecond);
  finish(eve_);
  EXPECT_EQ(running(eve_), 2u);
  nodes_.resize(1);
  world_.run_for(kSecond);
  finish(eve_);
  EXPECT_EQ(running(eve_), 1u) << "at least one runs";
  nodes_.clear();
  finish(eve_);
  EXPECT_EQ(running(eve_), 1u) << "an honest client may be between two calls";
  world_.run_for(kSecond);
  finish(eve_);
  EXPECT_EQ(running(eve_), 16u) << "nobody else is there";
}

TEST_F(CallThrottleTest, TwoUsersWhoAskForMuchRunAlike) {
  ask_for("user/eve", 1000, eve_);
  ask_for("user/bob", 100, bob_);
  EXPECT_EQ(running(eve_), 16u);
  EXPECT_EQ(running(bob_), 16u);
}

TEST_F(CallThrottleTest, WhoGivesUpLeavesTheTurnToOthers) {
  ask_for("user/eve", 16, eve_);
  CancelScope scope(loop_, nullptr, INT64_MAX, {});
  Asked first;
  gate_.spawn(
      [](CallThrottle& throttle, Asked& into, CancellationToken& cancellation) -> Task<void> {
        into = co_await throttle.begin_of_user("user/eve").with_cancellation(cancellation);
      }(throttle_, first, scope.cancellation()));
  settle();
  ask_for("user/eve", 1, bob_);
  scope.cancellation().request(fail(Errc::interrupted, "given up"));
  settle();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->error().code, Errc::interrupted);
  EXPECT_EQ(running(bob_), 0u);
  eve_.pop_front();
  settle();
  EXPECT_EQ(running(bob_), 1u);
}

}  // namespace
}  // namespace ff::rpc
