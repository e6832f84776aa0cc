// Who waits for keys is told of each change, in the order in which it came.
#include "storage/gateway/key_waits.h"

#include <gtest/gtest.h>

#include <optional>

#include "platform/sim/sim_world.h"

namespace ff::gateway {
namespace {

TEST(KeyWaitsTest, AnnouncementsReachThoseThatWaitForTheKey) {
  sim::SimWorld world;
  KeyWaits waits(world.loop());
  waits.announce("a");
  std::optional<KeyWaits::KeyWait> first(std::in_place, waits, std::vector<std::string>{"a", "b"});
  KeyWaits::KeyWait second(waits, {"b", "b"});
  EXPECT_EQ(waits.commands(), 2u);
  EXPECT_FALSE(first->announced().is_set());
  waits.announce("a");
  EXPECT_TRUE(first->announced().is_set());
  EXPECT_FALSE(second.announced().is_set());
  first->announced().reset();
  waits.announce("b");
  EXPECT_TRUE(first->announced().is_set());
  EXPECT_TRUE(second.announced().is_set());
  first.reset();
  second.announced().reset();
  waits.announce("a");
  EXPECT_FALSE(second.announced().is_set());
  waits.announce_all();
  EXPECT_TRUE(second.announced().is_set());
  EXPECT_EQ(waits.commands(), 1u);
}

}  // namespace
}  // namespace ff::gateway
