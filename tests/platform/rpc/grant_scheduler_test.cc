// The grant scheduler: the limit of concurrent grants, their order, and their return.
#include "platform/rpc/grant_scheduler.h"

#include <gtest/gtest.h>

#include <string>

namespace ff::rpc {
namespace {

class NamedWaiter final : public GrantScheduler::Waiter {
 public:
  NamedWaiter(std::string name, std::string& turns) : name_(std::move(name)), turns_(turns) {}
  void granted() override { turns_ += name_; }

 private:
  std::string name_;
  std::string& turns_;
};

class GrantSchedulerTest : public testing::Test {
 protected:
  std::string turns_;
  NamedWaiter a_{"a", turns_};
  NamedWaiter b_{"b", turns_};
  NamedWaiter c_{"c", turns_};
};

TEST_F(GrantSchedulerTest, SlotsAreTakenAndGivenBack) {
  GrantScheduler grants(2);
  EXPECT_TRUE(grants.try_acquire());
  EXPECT_TRUE(grants.try_acquire());
  EXPECT_FALSE(grants.try_acquire());
  grants.release();
  EXPECT_TRUE(grants.try_acquire());
  grants.release();
  grants.wait(1, a_);  // one is free
  EXPECT_EQ(turns_, "a");
  EXPECT_FALSE(grants.try_acquire());
}

TEST_F(GrantSchedulerTest, TheOldestCallIsNextAndOfEqualOnesTheFirst) {
  GrantScheduler grants(1);
  ASSERT_TRUE(grants.try_acquire());
  grants.wait(20, a_);
  grants.wait(10, b_);
  grants.wait(10, c_);
  EXPECT_EQ(turns_, "");
  grants.release();
  EXPECT_EQ(turns_, "b");
  grants.release();
  grants.release();
  EXPECT_EQ(turns_, "bca");
}

TEST_F(GrantSchedulerTest, NobodyOvertakesWhoWaits) {
  GrantScheduler grants(1);
  ASSERT_TRUE(grants.try_acquire());
  grants.wait(1, a_);
  grants.release();
  EXPECT_EQ(turns_, "a");
  EXPECT_FALSE(grants.try_acquire());
}

TEST_F(GrantSchedulerTest, WhoLeavesGetsNoTurn) {
  GrantScheduler grants(1);
  ASSERT_TRUE(grants.try_acquire());
  grants.wait(1, a_);
  grants.wait(2, b_);
  grants.cancel(a_);
  grants.cancel(c_);  // never waited
  grants.release();
  EXPECT_EQ(turns_, "b");
}

TEST_F(GrantSchedulerTest, ZeroIsNoLimit) {
  GrantScheduler grants(0);
  for (int i = 0; i < 100; i++) EXPECT_TRUE(grants.try_acquire());
  grants.wait(1, a_);
  grants.wait(1, b_);
  EXPECT_EQ(turns_, "ab");
  grants.release();
}

}  // namespace
}  // namespace ff::rpc
