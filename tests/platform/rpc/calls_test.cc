// Calls over a simulated network: replies, errors, deadlines, cancellation, limits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"
#include "rpc_world.h"

namespace ff::rpc {
namespace {

uint64_t answered(RpcWorld& world, std::string_view method, std::string_view code) {
  return answered_calls(world.server_metrics, method, code);
}

uint64_t made(RpcWorld& world, std::string_view method, std::string_view code) {
  return made_calls(world.client_metrics, method, code);
}

TEST(CallsTest, APingIsAnswered) {
  RpcWorld world;
  TestClient a(world, "a");
  wire::PingRequest request;
  request.set_answer_bytes(1000);
  const auto reply = a.ping(request);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->data().size(), 1000u);
  EXPECT_EQ(world.probe.pings(), 1u);
  EXPECT_EQ(answered(world, "probe.ping", "ok"), 1u);
}

TEST(CallsTest, BulkGoesBothWays) {
  RpcWorld world;
  TestClient a(world, "a");
  std::vector<std::byte> memory(5 * kMiB + 3);
  const auto got = run_task(world.loop, probe_read(a.client, memory, 42, a.in(10 * kSecond)));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(memory, ProbeService::pattern(42, memory.size()));
  EXPECT_EQ(got->crc(), simd::crc32c(memory));
  const auto put = run_task(world.loop, probe_write(a.client, memory, a.in(10 * kSecond)));
  ASSERT_TRUE(put.ok()) << put.error().message;
  EXPECT_EQ(put->crc(), simd::crc32c(memory));
}

TEST(CallsTest, RepliesComeInAnyOrder) {
  RpcWorld world;
  TestClient a(world, "a");
  Gate gate(world.loop);
  std::vector<std::optional<Result<wire::PingReply>>> replies(20);
  std::vector<int> order;
  for (size_t i = 0; i < replies.size(); i++) {
    auto request = slow_ping(static_cast<uint32_t>(100 * (replies.size() - i)));
    gate.spawn(store(call_method(a.client, kPing, request, a.in(60 * kSecond)), replies[i]));
  }
  world.world.run_for(kSecond);
  EXPECT_TRUE(replies.back().has_value());
  EXPECT_FALSE(replies.front().has_value());
  run_task(world.loop, gate.wait_empty());
  for (const auto& reply : replies) EXPECT_TRUE((*reply).ok());
}

TEST(CallsTest, AnAnswerAboutTheRequestComesAsItIs) {
  RpcWorld world;
  TestClient a(world, "a");
  wire::PingRequest request;
  request.set_answer_bytes(2 * kMiB);
  const auto reply = a.ping(request);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::usage);
  EXPECT_EQ(reply.error().message.find("probe.ping"), std::string::npos) << reply.error().message;
}

TEST(CallsTest, AnUnknownMethodHarmsNothing) {
  RpcWorld world;
  TestClient a(world, "a");
  constexpr Method<wire::PingRequest, wire::PingReply> kNone{999, "none"};
  const auto reply =
      run_task(world.loop, call_method(a.client, kNone, wire::PingRequest(), a.in(10 * kSecond)));
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::unsupported);
  EXPECT_TRUE(a.ping().ok());
  EXPECT_EQ(answered(world, "unknown", "unsupported"), 1u);
}

TEST(CallsTest, ADeadlineEndsTheCallOnBothSides) {
  RpcWorld world;
  TestClient a(world, "a");
  ASSERT_TRUE(a.ping().ok());
  const int64_t began = world.loop.now_ns();
  const auto reply = a.ping(slow_ping(60'000), 2 * kSecond);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::deadline);
  EXPECT_LE(world.loop.now_ns() - began, 2 * kSecond + 10 * kMillisecond);
  world.world.run_for(100 * kMillisecond);
  EXPECT_EQ(world.probe.pings(), 1u);
  // The cancel, or the server's own clock: whichever comes first.
  EXPECT_EQ(
      answered(world, "probe.ping", "deadline") + answered(world, "probe.ping", "interrupted"), 1u);
}

TEST(CallsTest, EachMethodAndEndingHasOneSeriesOnBothSides) {
  RpcWorld world;
  wire::PingRequest too_much;
  too_much.set_answer_bytes(2 * kMiB);
  for (int round = 0; round < 2; round++) {
    // Another channel and another server count on in the same series.
    TestClient a(world, "a");
    for (int i = 0; i < 3; i++) EXPECT_TRUE(a.ping().ok());
    EXPECT_FALSE(a.ping(too_much).ok());
    std::vector<std::byte> memory(100);
    EXPECT_TRUE(run_task(world.loop, probe_read(a.client, memory, 1, a.in(kSecond))).ok());
    world.stop_server();
    world.start_server();
  }
  for (const auto& count : {answered, made}) {
    EXPECT_EQ(count(world, "probe.ping", "ok"), 6u);
    EXPECT_EQ(count(world, "probe.ping", "usage"), 2u);
    EXPECT_EQ(count(world, "probe.read", "ok"), 2u);
    EXPECT_EQ(count(world, "probe.read", "usage"), 0u);
  }
  EXPECT_EQ(series(world.server_metrics, "ff_rpc_server_seconds_count{method=\"probe.ping\"}"), 8u);
  EXPECT_EQ(series(world.server_metrics, "ff_rpc_server_seconds_count{method=\"probe.read\"}"), 2u);
}

TEST(CallsTest, UnknownMethodsShareOneSeries) {
  RpcWorld world;
  TestClient a(world, "a");
  for (uint32_t number = 900; number < 950; number++) {
    const Method<wire::PingRequest, wire::PingReply> none{number, "none"};
    (void)run_task(world.loop, call_method(a.client, none, wire::PingRequest(), a.in(kSecond)));
  }
  EXPECT_EQ(answered(world, "unknown", "unsupported"), 50u);
  const std::string text = world.server_metrics.text();
  const std::string_view name = "\nff_rpc_server_calls_total{";
  EXPECT_EQ(text.find(name), text.rfind(name));
}

// The server itself keeps the deadline, also when no cancel can reach it.
TEST(CallsTest, AServerDropsWorkWhoseTimeHasPassed) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 5'000, a.in(2 * kSecond));
  world.net.block("a", "s");
  world.world.run_for(8 * kSecond);
  EXPECT_EQ(world.probe.pings(), 1u);
  EXPECT_EQ(answered(world, "probe.ping", "deadline"), 1u);
  world.net.unblock("a", "s");
}

TEST(CallsTest, ACancelReachesTheHandler) {
  RpcWorld world;
  TestClient a(world, "a");
  SlowPing ping(a, 60'000);
  ping.cancel(fail(Errc::interrupted, "enough"));
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_EQ(ping.reply->error().message, "enough");
  world.world.run_for(100 * kMillisecond);
  EXPECT_EQ(answered(world, "probe.ping", "interrupted"), 1u);
  EXPECT_TRUE(a.ping().ok());
}

TEST(CallsTest, TooManyCallsAreBusyAndTheRestGoesOn) {
  RpcWorld world(1, {.connection = {.calls_max = 4}});
  TestClient a(world, "a");
  ASSERT_TRUE(a.ping().ok());
  // The client keeps the limit by itself: all of these are answered in turns.
  Gate gate(world.loop);
  std::vector<std::optional<Result<wire::PingReply>>> replies(12);
  for (auto& reply : replies) {
    gate.spawn(store(call_method(a.client, kPing, slow_ping(1000), INT64_MAX), reply));
  }
  const int64_t began = world.loop.now_ns();
  run_task(world.loop, gate.wait_empty());
  for (const auto& reply : replies) EXPECT_TRUE((*reply).ok());
  EXPECT_GE(world.loop.now_ns() - began, 3 * kSecond);
}

// A client that does not keep the limit.
Task<Result<int>> flood(RpcWorld& world, net::Transport& transport, int calls) {
  FF_CO_TRY(auto connection, co_await raw_connection(world, transport));
  auto self = RpcWorld::identity("flood");
  FF_CO_TRY(const Peer peer, co_await client_handshake(*connection, std::move(self)));
  for (int i = 1; i <= calls; i++) {
    net::FrameHeader head{
        .kind = net::FrameKind::call, .call = static_cast<uint64_t>(i), .method = 1};
    connection->send(head, slow_ping(1000).SerializeAsString());
  }
  int busy = 0;
  for (int i = 0; i < calls; i++) {
    FF_CO_TRY(const net::Frame frame, co_await connection->receive());
    wire::Error error;
    if ((frame.head.flags & kFlagError) != 0 && error.ParseFromString(frame.message)) {
      busy += error.code() == "busy";
    }
  }
  co_return busy;
}

TEST(CallsTest, AFloodIsAnsweredWithBusy) {
  RpcWorld world(1, {.connection = {.calls_max = 4}});
  TestClient a(world, "a");
  const auto busy = run_task(world.loop, flood(world, *a.transport, 10));
  ASSERT_TRUE(busy.ok()) << busy.error().message;
  EXPECT_EQ(*busy, 6);
  EXPECT_TRUE(a.ping().ok());
}

TEST(CallsTest, CallsUnderWayFailWithTheConnection) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 60'000);
  world.net.break_connections(1);
  world.world.run_for(100 * kMillisecond);
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_EQ(ping.reply->error().code, Errc::unreachable);
  EXPECT_EQ(world.server->connections(), 0u);
  EXPECT_EQ(world.probe.pings(), 1u);
}

TEST(CallsTest, ASilentPeerIsGivenUpByBothSides) {
  RpcWorld world;
  TestClient a(world, "a");
  ASSERT_TRUE(a.ping().ok());
  world.world.run_for(60 * kSecond);
  EXPECT_EQ(world.server->connections(), 1u);  // pings keep it
  const SlowPing ping(a, 100'000);
  world.net.block("a", "s");
  world.net.block("s", "a");
  world.world.run_for(20 * kSecond);
  ASSERT_TRUE(ping.reply.has_value());
  const Error& error = ping.reply->error();
  EXPECT_EQ(error.code, Errc::unreachable);
  EXPECT_NE(error.message.find("no sign of life"), std::string::npos) << error.message;
  EXPECT_EQ(world.server->connections(), 0u);
  world.net.unblock("a", "s");
  world.net.unblock("s", "a");
}

TEST(CallsTest, AServerDrains) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 2000);
  world.stop_server(10 * kSecond);
  world.world.run_for(100 * kMillisecond);
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_TRUE(ping.reply->ok()) << ping.reply->error().message;
  EXPECT_EQ(a.ping().error().code, Errc::unreachable);
}

TEST(CallsTest, ADrainEndsWhatTakesTooLong) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 60'000);
  const int64_t began = world.loop.now_ns();
  world.stop_server(2 * kSecond);
  EXPECT_LE(world.loop.now_ns() - began, 3 * kSecond);
  world.world.run_for(100 * kMillisecond);
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_EQ(ping.reply->error().code, Errc::unreachable);
}

TEST(CallsTest, GrantsLimitWhoSendsAtOnce) {
  RpcWorld world;
  TestClient a(world, "a", 2);
  constexpr size_t kCalls = 8;
  constexpr size_t kSize = kMiB;
  world.net.set_link("s", "a", {.bytes_per_second = 1'000'000});
  ASSERT_TRUE(a.ping().ok());
  std::vector<std::vector<std::byte>> memory(kCalls, std::vector<std::byte>(kSize));
  std::vector<std::optional<Result<wire::ReadReply>>> replies(kCalls);
  Gate gate(world.loop);
  for (size_t i = 0; i < kCalls; i++) {
    gate.spawn(store(probe_read(a.client, memory[i], i + 1, INT64_MAX), replies[i]));
  }
  // Each takes about a second; two at a time means: the first two are done, later ones untouched.
  world.world.run_for(2500 * kMillisecond);
  EXPECT_TRUE(replies[0] && replies[1]);
  for (size_t i = 4; i < kCalls; i++) {
    EXPECT_FALSE(replies[i].has_value());
    EXPECT_EQ(memory[i], std::vector<std::byte>(kSize));
  }
  run_task(world.loop, gate.wait_empty());
  for (size_t i = 0; i < kCalls; i++) {
    ASSERT_TRUE(replies[i] && replies[i]->ok());
    EXPECT_EQ(memory[i], ProbeService::pattern(i + 1, kSize));
  }
}

TEST(CallsTest, AGivenUpReadLeavesTheMemoryAlone) {
  RpcWorld world;
  TestClient a(world, "a");
  world.net.set_link("s", "a", {.bytes_per_second = 1'000'000});
  std::vector<std::byte> memory(4 * kMiB);
  const auto late = run_task(world.loop, probe_read(a.client, memory, 1, a.in(2 * kSecond)));
  EXPECT_EQ(late.error().code, Errc::deadline);
  const auto then = memory;
  EXPECT_NE(memory[0], std::byte{});
  world.world.run_for(30 * kSecond);
  EXPECT_EQ(memory, then);
  EXPECT_TRUE(a.ping().ok());
}

}  // namespace
}  // namespace ff::rpc
