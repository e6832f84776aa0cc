// Streams: what tests/e2e/serve_kv_replies.py does not compare with a Redis server: what lies in
// the store, what becomes of it, and times.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "storage/gateway/leftover_sweep.h"
#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

class StreamsTest : public testing::Test {
 protected:
  std::string say(const std::string& request) { return client_.say(request + "\r\n"); }
  void add(const std::string& key, int entries) {
    for (int i = 0; i < entries; i++) ASSERT_EQ(say("XADD " + key + " * f v")[0], '$');
  }
  // Until nothing is left that a round of the sweep removes.
  void sweep() {
    const auto swept = run_task(
        world_.world.loop(), sweep_leftovers_once(world_.gateway.access(), world_.gateway.locks()));
    EXPECT_TRUE(swept.ok());
  }

  RedisWorld world_;
  RedisWorld::Client client_{world_, 1};
};

TEST_F(StreamsTest, IdsGrowAlthoughTheClockStandsStill) {
  const std::string first = say("XADD s * f v"), second = say("XADD s * f v");
  EXPECT_NE(first.find("-0\r\n"), first.npos);
  EXPECT_EQ(second.substr(0, second.find('-')), first.substr(0, first.find('-')));
  EXPECT_NE(second.find("-1\r\n"), second.npos);
  EXPECT_EQ(say("XADD s 99999999999999-5 f v"), "$16\r\n99999999999999-5\r\n");
  EXPECT_EQ(say("XADD s * f v"), "$16\r\n99999999999999-6\r\n");
}

// Keys alone are listed and counted, and what a removed stream had goes.
TEST_F(StreamsTest, RemovedStreamsLeaveNothing) {
  add("s", 500);
  EXPECT_EQ(say("XGROUP CREATE s g 0"), "+OK\r\n");
  EXPECT_EQ(say("XREADGROUP GROUP g c STREAMS s >").substr(0, 2), "*1");
  EXPECT_GT(world_.store.parts(), 10u);
  EXPECT_EQ(say("DBSIZE"), ":1\r\n");
  EXPECT_EQ(say("KEYS *"), "*1\r\n$1\r\ns\r\n");
  EXPECT_EQ(say("DEL s"), ":1\r\n");
  sweep();
  EXPECT_EQ(world_.store.parts(), 0u);
  add("s", 500);
  EXPECT_EQ(say("SET s v"), "+OK\r\n");
  sweep();
  EXPECT_EQ(world_.store.parts(), 0u);
  EXPECT_EQ(say("GET s"), "$1\r\nv\r\n");
}

TEST_F(StreamsTest, ExpiredStreamsLeaveNothing) {
  add("s", 500);
  add("t", 500);
  EXPECT_EQ(say("PEXPIRE s 100"), ":1\r\n");
  EXPECT_EQ(say("PEXPIRE t 100"), ":1\r\n");
  world_.world.run_for(101 * kMillisecond);
  EXPECT_EQ(say("EXISTS s t"), ":0\r\n");
  add("t", 1);  // another one takes the key before the sweep has come
  sweep();
  EXPECT_EQ(say("XLEN s"), ":0\r\n");
  EXPECT_EQ(say("XLEN t"), ":1\r\n");
  EXPECT_EQ(world_.store.parts(), 1u);
}

TEST_F(StreamsTest, RenamesAndCopiesKeepTheirPages) {
  add("{k}s", 300);
  add("{k}t", 300);
  EXPECT_EQ(say("RENAME {k}s {k}t"), "+OK\r\n");
  sweep();
  EXPECT_EQ(say("XLEN {k}t"), ":300\r\n");
  const size_t parts = world_.store.parts();
  EXPECT_EQ(say("RENAME {k}t other"), "+OK\r\n");
  sweep();
  EXPECT_EQ(world_.store.parts(), parts);
  EXPECT_EQ(say("COPY other copy"), ":1\r\n");
  EXPECT_EQ(world_.store.parts(), 2 * parts);
  EXPECT_EQ(say("DEL other"), ":1\r\n");
  sweep();
  EXPECT_EQ(world_.store.parts(), parts);
  EXPECT_EQ(say("XRANGE copy - + COUNT 1").substr(0, 2), "*1");
}

TEST_F(StreamsTest, ATransactionLeavesNothingOfWhatItMakesAndRemoves) {
  add("{k}old", 200);
  for (const char* const request :
       {"MULTI", "XADD {k}new * f v", "XADD {k}old * f v", "RENAME {k}new {k}third", "DEL {k}third",
        "DEL {k}old", "XADD {k}old * f v", "EXEC"}) {
    EXPECT_NE(say(request)[0], '-') << request;
  }
  EXPECT_EQ(say("XLEN {k}old"), ":1\r\n");
  sweep();
  EXPECT_EQ(world_.store.parts(), 1u);
}

// The messages of a group that is read to its end, in a long stream: what is written does not grow.
TEST_F(StreamsTest, CostsDoNotGrowWithTheStream) {
  const auto cost = [&](const std::string& request) {
    const size_t before = world_.store.bytes_put;
    EXPECT_NE(say(request)[0], '-') << request;
    return world_.store.bytes_put - before;
  };
  EXPECT_EQ(say("XGROUP CREATE s g 0 MKSTREAM"), "+OK\r\n");
  for (int i = 1; i <= 6000; i++) ASSERT_EQ(say(fmt::format("XADD s {}-1 f v", i))[0], '$');
  for (int i = 0; i < 50; i++) {
    ASSERT_EQ(say("XREADGROUP GROUP g c COUNT 100 STREAMS s >").substr(0, 2), "*1");
  }
  EXPECT_LT(cost("XADD s * f v"), 5000u);
  EXPECT_LT(cost("XREADGROUP GROUP g c COUNT 1 STREAMS s >"), 6000u);
  EXPECT_LT(cost("XACK s g 2500-1"), 6000u);
}

TEST_F(StreamsTest, AConsumerThatFindsNothingWritesNothing) {
  EXPECT_EQ(say("XGROUP CREATE s g 0 MKSTREAM"), "+OK\r\n");
  EXPECT_EQ(say("XREADGROUP GROUP g c STREAMS s >"), "*-1\r\n");
  const size_t before = world_.store.applied;
  EXPECT_EQ(say("XREADGROUP GROUP g c STREAMS s >"), "*-1\r\n");
  EXPECT_EQ(world_.store.applied, before);
  // Nor does one that asks for its history, more than once a second.
  for (int i = 0; i < 50; i++) {
    world_.world.run_for(50 * kMillisecond);
    EXPECT_EQ(say("XREADGROUP GROUP g c STREAMS s 0"), "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n");
  }
  EXPECT_LE(world_.store.applied - before, 3u);
}

TEST_F(StreamsTest, TildeRemovesWholePages) {
  for (int i = 1; i <= 1000; i++) ASSERT_EQ(say(fmt::format("XADD s {}-1 f v", i))[0], '$');
  EXPECT_EQ(say("XTRIM s MAXLEN ~ 1000"), ":0\r\n");
  EXPECT_EQ(say("XTRIM s MAXLEN ~ 900 LIMIT 1"), ":0\r\n");
  const std::string removed = say("XTRIM s MAXLEN ~ 900");
  EXPECT_EQ(removed, ":64\r\n");
  EXPECT_EQ(say("XTRIM s MINID ~ 129"), ":64\r\n");
  EXPECT_EQ(say("XTRIM s MINID ~ 130"), ":0\r\n");
  EXPECT_EQ(say("XTRIM s MAXLEN = 10"), ":862\r\n");
  EXPECT_EQ(say("XLEN s"), ":10\r\n");
  EXPECT_EQ(world_.store.parts(), 1u);
}

class WaitsTest : public StreamsTest {
 protected:
  RedisWorld::Client second_{world_, 2}, third_{world_, 3};
};

TEST_F(WaitsTest, AnEntryWakesThoseThatWait) {
  EXPECT_EQ(client_.say("XREAD BLOCK 0 STREAMS s t $ $\r\nPING\r\n"), "");
  EXPECT_EQ(second_.say("XREAD BLOCK 1000 STREAMS s 0\r\n"), "");
  EXPECT_EQ(world_.gateway.waits().commands(), 2u);
  EXPECT_EQ(third_.say("XADD t 1-1 f v\r\n"), "$3\r\n1-1\r\n");
  EXPECT_EQ(
      client_.settle(),
      "*1\r\n*2\r\n$1\r\nt\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n+PONG\r\n");
  world_.world.run_for(999 * kMillisecond);
  EXPECT_EQ(second_.settle(), "");
  world_.world.run_for(2 * kMillisecond);
  EXPECT_EQ(second_.settle(), "*-1\r\n");
  EXPECT_EQ(world_.gateway.waits().commands(), 0u);
}

TEST_F(WaitsTest, TheFirstOneGetsIt) {
  EXPECT_EQ(say("XGROUP CREATE s g $ MKSTREAM"), "+OK\r\n");
  EXPECT_EQ(second_.say("XREADGROUP GROUP g a BLOCK 0 STREAMS s >\r\n"), "");
  EXPECT_EQ(third_.say("XREADGROUP GROUP g b BLOCK 0 STREAMS s >\r\n"), "");
  EXPECT_EQ(say("XADD s 1-1 f v"), "$3\r\n1-1\r\n");
  EXPECT_EQ(third_.settle(), "");
  EXPECT_NE(second_.settle(), "");
  EXPECT_EQ(second_.say("XREADGROUP GROUP g a BLOCK 0 STREAMS s >\r\n"), "");
  EXPECT_EQ(say("XADD s 1-2 f v"), "$3\r\n1-2\r\n");
  EXPECT_EQ(second_.settle(), "");
  EXPECT_NE(third_.settle(), "");
}

TEST_F(WaitsTest, AClientThatLeavesWaitsForNothing) {
  EXPECT_EQ(second_.say("XREAD BLOCK 0 STREAMS s $\r\n"), "");
  second_.stream->end();
  world_.world.run_for(1);
  EXPECT_EQ(world_.gateway.waits().commands(), 0u);
  EXPECT_TRUE(second_.stream->closed());
}

TEST_F(WaitsTest, AWaitEndsByRequest) {
  EXPECT_EQ(second_.say("XREAD BLOCK 0 STREAMS s $\r\n"), "");
  EXPECT_EQ(say("CLIENT UNBLOCK 2 FOO"),
            "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n");
  EXPECT_EQ(say("CLIENT UNBLOCK 3"), ":0\r\n");
  EXPECT_EQ(say("CLIENT UNBLOCK 2 ERROR"), ":1\r\n");
  EXPECT_EQ(second_.settle(), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
}

// What a client sends while it waits is read, within bounds.
TEST_F(WaitsTest, RequestsBehindAWaitAreKept) {
  std::string many = "XREAD BLOCK 100 STREAMS s $\r\n";
  for (int i = 0; i < 800'000; i++) many += "PING\r\n";
  EXPECT_EQ(second_.say(many), "");
  EXPECT_GT(second_.stream->unread(), many.size() / 2);
  world_.world.run_for(101 * kMillisecond);
  std::string replies = second_.settle();
  while (second_.stream->unread() > 0) replies += second_.settle();
  EXPECT_EQ(replies.substr(0, 12), "*-1\r\n+PONG\r\n");
  EXPECT_EQ(replies.size(), 5 + 800'000 * 7u);
}

TEST_F(WaitsTest, BetweenMultiAndExecNothingWaits) {
  EXPECT_EQ(say("MULTI"), "+OK\r\n");
  EXPECT_EQ(say("XREAD BLOCK 0 STREAMS s $"), "+QUEUED\r\n");
  EXPECT_EQ(say("EXEC"), "*1\r\n*-1\r\n");
}

}  // namespace
}  // namespace ff::gateway
