// When a connection writes queued frames: within a turn and at its end, over a scripted stream.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "scripted_stream.h"

namespace ff::rpc {
namespace {

using net::FrameKind;

constexpr net::RemoteBuffer kSink = {.token = 1, .size = kMiB};

TEST(ConnectionWrites, FewFramesLeaveTogetherAtTheEndOfTheTurn) {
  Scripted script;
  for (int i = 0; i < 7; i++) script.connection->send({.kind = FrameKind::ping});
  EXPECT_TRUE(script.stream->sent().empty());
  EXPECT_EQ(script.sent().size(), 7u);
}

TEST(ConnectionWrites, ManyLeaveInBatchesWithinIt) {
  Scripted script;
  for (int i = 0; i < 20; i++) script.connection->send({.kind = FrameKind::ping});
  EXPECT_EQ(script.stream->sent().size(), 16u);
  EXPECT_EQ(script.sent().size(), 4u);
}

// The task of a small push goes on at once, and may use its memory again, even if nothing can be
// written now.
TEST(ConnectionWrites, ASmallPushIsCopied) {
  Scripted script;
  script.stream->blocked = true;
  std::string bytes(4 * kKiB, 'a');
  bool pushed = false;
  Gate gate(script.loop);
  gate.spawn([](net::Connection& connection, std::string& from, bool& out) -> Task<void> {
    const auto done = co_await connection.push(kSink, 0, as_bytes(from));
    out = done.ok();
    from.assign(from.size(), 'b');
  }(*script.connection, bytes, pushed));
  script.settle();
  EXPECT_TRUE(pushed);
  script.connection->send({.kind = FrameKind::ping});
  script.stream->blocked = false;
  script.stream->writable().set();
  const auto sent = script.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].head.kind, FrameKind::push);
  EXPECT_EQ(sent[0].head.payload_len, 4 * kKiB);
  EXPECT_EQ(sent[1].head.kind, FrameKind::ping);
  EXPECT_EQ(script.stream->payloads, std::string(4 * kKiB, 'a'));
  EXPECT_EQ(script.connection->queued_bytes(), 0u);
  script.connection->send({.kind = FrameKind::ping});
  EXPECT_EQ(script.sent().size(), 1u);
  EXPECT_FALSE(script.connection->failed());
}

TEST(ConnectionWrites, ALargePushKeepsItsMemoryUntilItIsWritten) {
  Scripted script;
  script.stream->blocked = true;
  const std::string bytes(64 * kKiB, 'a');
  bool pushed = false;
  Gate gate(script.loop);
  gate.spawn([](net::Connection& connection, const std::string& from, bool& out) -> Task<void> {
    const auto done = co_await connection.push(kSink, 0, as_bytes(from));
    out = done.ok();
  }(*script.connection, bytes, pushed));
  script.settle();
  EXPECT_FALSE(pushed);
  script.stream->blocked = false;
  script.stream->writable().set();
  EXPECT_EQ(script.sent().size(), 1u);
  EXPECT_TRUE(pushed);
  EXPECT_EQ(script.stream->payloads, bytes);
}

// Small pushes of many tasks wait for room like large ones: what piles up stays bounded.
TEST(ConnectionWrites, SmallPushesWaitForRoom) {
  Scripted script;
  script.stream->blocked = true;
  const std::string bytes(8 * kKiB, 'a');
  int pushed = 0;
  Gate gate(script.loop);
  gate.spawn([](net::Connection& connection, const std::string& from, int& out) -> Task<void> {
    for (;;) {
      const auto done = co_await connection.push(kSink, 0, as_bytes(from));
      if (!done) co_return;
      out++;
    }
  }(*script.connection, bytes, pushed));
  script.settle();
  EXPECT_LE(script.connection->queued_bytes(), net::kSendQueueHighWater + 16 * kKiB);
  EXPECT_GE(script.connection->queued_bytes(), net::kSendQueueHighWater);
  script.connection->close(fail(Errc::interrupted, "enough"));
  script.settle();
  EXPECT_EQ(gate.running(), 0u);
}

}  // namespace
}  // namespace ff::rpc
