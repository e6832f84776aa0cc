// Who may send bulk at once: how many, in which order, and what happens to slots.
#include "platform/rpc/senders.h"

#include <gtest/gtest.h>

#include <string>

namespace ff::rpc {
namespace {

class NamedWaiter final : public Senders::Waiter {
 public:
  NamedWaiter(std::string name, std::string& turns) : name_(std::move(name)), turns_(turns) {}
  void granted() override { turns_ += name_; }

 private:
  std::string name_;
  std::string& turns_;
};

class SendersTest : public testing::Test {
 protected:
  std::string turns_;
  NamedWaiter a_{"a", turns_};
  NamedWaiter b_{"b", turns_};
  NamedWaiter c_{"c", turns_};
};

TEST_F(SendersTest, SlotsAreTakenAndGivenBack) {
  Senders senders(2);
  EXPECT_TRUE(senders.try_take());
  EXPECT_TRUE(senders.try_take());
  EXPECT_FALSE(senders.try_take());
  senders.give();
  EXPECT_TRUE(senders.try_take());
  senders.give();
  senders.wait(1, a_);  // one is free
  EXPECT_EQ(turns_, "a");
  EXPECT_FALSE(senders.try_take());
}

TEST_F(SendersTest, TheOldestCallIsNextAndOfEqualOnesTheFirst) {
  Senders senders(1);
  ASSERT_TRUE(senders.try_take());
  senders.wait(20, a_);
  senders.wait(10, b_);
  senders.wait(10, c_);
  EXPECT_EQ(turns_, "");
  senders.give();
  EXPECT_EQ(turns_, "b");
  senders.give();
  senders.give();
  EXPECT_EQ(turns_, "bca");
}

TEST_F(SendersTest, NobodyOvertakesWhoWaits) {
  Senders senders(1);
  ASSERT_TRUE(senders.try_take());
  senders.wait(1, a_);
  senders.give();
  EXPECT_EQ(turns_, "a");
  EXPECT_FALSE(senders.try_take());
}

TEST_F(SendersTest, WhoLeavesGetsNoTurn) {
  Senders senders(1);
  ASSERT_TRUE(senders.try_take());
  senders.wait(1, a_);
  senders.wait(2, b_);
  senders.leave(a_);
  senders.leave(c_);  // never waited
  senders.give();
  EXPECT_EQ(turns_, "b");
}

TEST_F(SendersTest, ZeroIsNoLimit) {
  Senders senders(0);
  for (int i = 0; i < 100; i++) EXPECT_TRUE(senders.try_take());
  senders.wait(1, a_);
  senders.wait(1, b_);
  EXPECT_EQ(turns_, "ab");
  senders.give();
}

}  // namespace
}  // namespace ff::rpc
