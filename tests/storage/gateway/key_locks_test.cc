// The order in which commands get the locks of their keys.
#include "storage/gateway/key_locks.h"

#include <gtest/gtest.h>

#include <memory>

#include "platform/base/gate.h"
#include "platform/sim/sim_world.h"

namespace ff::gateway {
namespace {

class KeyLocksTest : public testing::Test {
 protected:
  using Lock = std::unique_ptr<KeyLocks::KeyLock>;
  Lock shared(std::vector<std::string> keys) { return make(std::move(keys), false); }
  Lock exclusive(std::vector<std::string> keys) { return make(std::move(keys), true); }
  Lock make(std::vector<std::string> keys, bool exclusive) {
    return std::make_unique<KeyLocks::KeyLock>(locks_, std::move(keys), exclusive);
  }

  sim::SimWorld world_;
  KeyLocks locks_{world_.loop()};
};

TEST_F(KeyLocksTest, ReadersShareAndWritersDoNot) {
  auto first = shared({"a"});
  auto second = shared({"a"});
  auto writer = exclusive({"a"});
  auto third = shared({"a"});  // behind the writer, though readers hold the key
  EXPECT_TRUE(first->is_held() && second->is_held());
  EXPECT_FALSE(writer->is_held() || third->is_held());
  first.reset();
  EXPECT_FALSE(writer->is_held());
  second.reset();
  EXPECT_TRUE(writer->is_held());
  EXPECT_FALSE(third->is_held());
  writer.reset();
  EXPECT_TRUE(third->is_held());
  third.reset();
  EXPECT_EQ(locks_.keys(), 0u);
}

TEST_F(KeyLocksTest, AllKeysAtOnceAndInOrder) {
  auto a = exclusive({"a"});
  auto both = exclusive({"b", "a", "b"});
  auto b = exclusive({"b"});  // both was first, although it waits for a
  EXPECT_FALSE(both->is_held());
  EXPECT_FALSE(b->is_held());
  auto c = exclusive({"c"});
  EXPECT_TRUE(c->is_held());
  a.reset();
  EXPECT_TRUE(both->is_held());
  EXPECT_FALSE(b->is_held());
  both.reset();
  EXPECT_TRUE(b->is_held());
}

TEST_F(KeyLocksTest, OneThatGivesUpLetsTheNextThrough) {
  auto reader = shared({"a"});
  auto writer = exclusive({"a"});
  auto next = shared({"a"});
  EXPECT_FALSE(next->is_held());
  writer.reset();
  EXPECT_TRUE(next->is_held());
}

TEST_F(KeyLocksTest, NoKeysAreHeldAtOnce) { EXPECT_TRUE(exclusive({})->is_held()); }

TEST_F(KeyLocksTest, WaitersContinue) {
  auto first = exclusive({"a"});
  auto second = exclusive({"a"});
  bool held = false;
  Gate gate(world_.loop());
  gate.spawn([](KeyLocks::KeyLock& lock, bool& done) -> Task<void> {
    done = (co_await lock.wait()).ok();
  }(*second, held));
  world_.run_for(1);
  EXPECT_FALSE(held);
  first.reset();
  world_.run_for(1);
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace ff::gateway
