// Lists and sets: what tests/e2e/serve_kv_replies.py does not compare with a Redis server.
#include "storage/gateway/tree_value.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "platform/base/text.h"
#include "storage/gateway/leftover_sweep.h"
#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

class TreeValueTest : public testing::Test {
 protected:
  std::string say(const std::string& request) { return client_.say(request + "\r\n"); }

  RedisWorld world_;
  RedisWorld::Client client_{world_, 1}, second_{world_, 2};
};

// Members that lie at other places are not found.
TEST_F(TreeValueTest, KeysOfMembersAreFrozen) {
  EXPECT_EQ(hex(as_bytes(member_key("member"))).substr(16), "6d656d626572");
  EXPECT_EQ(hex(as_bytes(member_key("member"))).substr(0, 16), "1c384e8cff89e240");
  EXPECT_EQ(member_of_key(member_key("member")), "member");
  EXPECT_EQ(key_of_member_hash(hash_of_member_key(member_key("x"))), member_key("x").substr(0, 8));
}

TEST_F(TreeValueTest, EmptyOnesLeaveNothing) {
  for (int i = 0; i < 1000; i++) {
    EXPECT_NE(say(fmt::format("RPUSH l {}", i))[0], '-');
    EXPECT_EQ(say(fmt::format("SADD s {}", i)), ":1\r\n");
  }
  EXPECT_GT(world_.store.parts(), 30u);
  EXPECT_EQ(say("LPOP l 1000").substr(0, 5), "*1000");
  EXPECT_EQ(say("SPOP s 1000").substr(0, 5), "*1000");
  EXPECT_EQ(say("EXISTS l s"), ":0\r\n");
  EXPECT_EQ(world_.store.parts(), 0u) << "without a sweep";
}

TEST_F(TreeValueTest, CostsDoNotGrowWithTheList) {
  for (int i = 0; i < 100; i++) {
    std::string many = "RPUSH l";
    for (int k = 0; k < 200; k++) many += fmt::format(" {}", i * 200 + k);
    EXPECT_NE(say(many)[0], '-');
  }
  for (const char* const request :
       {"LPUSH l x", "RPUSH l x", "LPOP l", "RPOP l", "LSET l 10000 x", "LMOVE l l LEFT RIGHT"}) {
    const size_t before = world_.store.bytes_put;
    EXPECT_NE(say(request)[0], '-') << request;
    EXPECT_LT(world_.store.bytes_put - before, 20'000u) << request;
  }
  EXPECT_EQ(say("LINDEX l 9999"), "$1\r\nx\r\n");
}

TEST_F(TreeValueTest, MovesStayInASlot) {
  EXPECT_EQ(say("RPUSH a 1"), ":1\r\n");
  const std::string crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
  EXPECT_EQ(say("LMOVE a b LEFT LEFT"), crossed);
  EXPECT_EQ(say("SADD c 1"), ":1\r\n");
  EXPECT_EQ(say("SMOVE c d 1"), crossed);
  EXPECT_EQ(say("SUNIONSTORE d c"), crossed);
  EXPECT_EQ(say("LLEN a"), ":1\r\n");
}

TEST_F(TreeValueTest, AnElementWakesTheFirstThatWaits) {
  EXPECT_EQ(client_.say("BLPOP l 0\r\n"), "");
  EXPECT_EQ(second_.say("BLPOP l m 2\r\n"), "");
  RedisWorld::Client third(world_, 3);
  EXPECT_EQ(third.say("RPUSH l a\r\n"), ":1\r\n");
  EXPECT_EQ(client_.settle(), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
  EXPECT_EQ(second_.settle(), "");
  EXPECT_EQ(third.say("MULTI\r\nRPUSH m b\r\nDEL m\r\nEXEC\r\n").back(), '\n');
  EXPECT_EQ(second_.settle(), "");
  world_.world.run_for(2 * kSecond);
  EXPECT_EQ(second_.settle(), "*-1\r\n");
}

}  // namespace
}  // namespace ff::gateway
