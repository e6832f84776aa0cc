// How a client reconnects to a lost server: which calls fail, which wait, and the backoff.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "rpc_world.h"

namespace ff::rpc {
namespace {

uint64_t connects(const Metrics& metrics, std::string_view code) {
  return series(metrics, fmt::format("ff_rpc_connects_total{{code=\"{}\"}}", code));
}

TEST(ClientTest, ReconnectsAfterALossAndAfterFailures) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    RpcWorld world(seed);
    TestClient a(world, "a");
    ASSERT_TRUE(a.ping().ok());
    world.net.break_connections(1);
    world.world.run_for(100 * kMillisecond);
    EXPECT_TRUE(a.ping().ok());
    world.stop_server();
    world.world.run_for(100 * kMillisecond);
    const auto down = a.ping();
    ASSERT_FALSE(down.ok());
    EXPECT_EQ(down.error().code, Errc::unreachable);
    EXPECT_NE(down.error().message.find("s:7000: Connection refused"), std::string::npos)
        << down.error().message;
    world.start_server();
    const auto up = a.ping();
    EXPECT_TRUE(up.ok()) << up.error().message;
    EXPECT_EQ(connects(world.client_metrics, "ok"), 3u);
    EXPECT_EQ(connects(world.client_metrics, "unreachable"), 1u);
  }
}

// What the loss itself ends is the call that was under way, and no other.
TEST(ClientTest, TheCallAfterANoticedLossSucceeds) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 60'000);
  world.stop_server();
  world.start_server();
  world.world.run_for(100 * kMillisecond);
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_EQ(ping.reply->error().code, Errc::unreachable);
  const auto next = a.ping();
  EXPECT_TRUE(next.ok()) << next.error().message;
}

// Before the channel itself has heard that its connection has failed.
TEST(ClientTest, AFailedConnectionTakesNoCalls) {
  RpcWorld world;
  TestClient a(world, "a");
  const auto channel = run_task(world.loop, a.client.channel(INT64_MAX));
  ASSERT_TRUE(channel.ok());
  (*channel)->connection().close(fail(Errc::unreachable, "cut"));
  EXPECT_FALSE((*channel)->usable());
  const CallSpec spec{.method = kPing.number, .name = kPing.name};
  EXPECT_EQ(run_task(world.loop, (*channel)->call(spec, "")).error().code, Errc::unreachable);
  EXPECT_TRUE(a.ping().ok());
}

// The ticket of a client ends while it is connected: it connects again in time, with its newer one.
TEST(ClientTest, ANewerTicketIsUsedBeforeTheOldOneEnds) {
  RpcWorld world;
  TestClient a(world, "a");
  auth::Keyring& keyring = *a.transport->keyring();
  const auth::Entity node{.role = auth::Role::storage, .name = "s", .serial = 1};
  const int64_t now_s = world.loop.clock().wall_ns() / kSecond;
  const auto give_ticket = [&](int64_t end_s) { keyring.add_ticket(node, {}, end_s); };
  give_ticket(now_s + 1000);
  Client client(a.context, {"s", 7000, ""}, auth::Service{auth::Role::storage, "s"});
  const auto channel = [&] { return run_task(world.loop, client.channel(INT64_MAX)).value(); };
  const auto first = channel();
  world.world.run_for(500 * kSecond);
  EXPECT_EQ(channel(), first) << "there is no newer ticket";
  give_ticket(now_s + 3000);
  EXPECT_NE(channel(), first) << "it is idle, and the old ticket ends in 500 s";
  const auto second = channel();
  world.world.run_for(600 * kSecond);
  EXPECT_EQ(channel(), second) << "the new one is valid for long";
  run_task(world.loop, client.close());
}

// A server that starts again while the client's loop does something else: its goodbye waits in the
// socket when the next call is made.
TEST(ClientTest, AGoodbyeThatHasArrivedIsReadBeforeTheNextCall) {
  SystemClock clock;
  SystemLoop loop(clock);
  SeededRng rng(1);
  net::SystemTransport transport{{.mode = net::NetMode::tcp}};
  Metrics metrics;
  GrantScheduler grants;
  Router router;
  ProbeService probe(router);
  const Identity self{.name = "x", .software = "ff test"};
  std::optional<Server> server;
  server.emplace(loop, transport, router, metrics, self);
  const auto at = server->listen({"127.0.0.1", 0, ""});
  ASSERT_TRUE(at.ok());
  ClientContext context{loop, transport, grants, metrics, rng, self};
  Client client(context, *at, auth::Service{auth::Role::rank, {}});
  for (int round = 0; round < 3; round++) {
    const int64_t deadline_ns = loop.now_ns() + 60 * kSecond;
    const auto reply = run_task(loop, call_method(client, kPing, wire::PingRequest(), deadline_ns));
    EXPECT_TRUE(reply.ok()) << round << ": " << reply.error().message;
    const int64_t quiet_ns = loop.now_ns() + 2 * kStaleChannelNs;
    run_task(loop, server->close(0));
    server.emplace(loop, transport, router, metrics, self);
    ASSERT_TRUE(server->listen(*at).ok());
    while (loop.now_ns() < quiet_ns) {
    }
  }
  run_task(loop, client.close());
  run_task(loop, server->close(0));
}

// A call made while an attempt hangs, which then fails although the server is back.
class OlderAttemptTest : public testing::Test {
 protected:
  OlderAttemptTest() : client_(world_, "a"), gate_(world_.loop) {
    constexpr int64_t kOneWayNs = 100 * kMillisecond;
    world_.net.set_default_link({.delay_min_ns = kOneWayNs, .delay_max_ns = kOneWayNs});
    begin(first_);
    world_.world.run_for(5 * kOneWayNs / 2);  // connected, in the handshake
    world_.net.block("a", "s");
    world_.world.run_for(5 * kSecond);
    begin(second_);
    world_.world.run_for(kMillisecond);
    EXPECT_FALSE(first_ || second_);
  }
  ~OlderAttemptTest() override { run_task(world_.loop, gate_.close(fail(Errc::failed, "over"))); }

  void begin(std::optional<Result<wire::PingReply>>& reply) {
    auto call = call_method(client_.client, kPing, wire::PingRequest(), client_.in(60 * kSecond));
    gate_.spawn(store(std::move(call), reply));
  }

  RpcWorld world_;
  TestClient client_;
  std::optional<Result<wire::PingReply>> first_;
  std::optional<Result<wire::PingReply>> second_;
  Gate gate_;
};

TEST_F(OlderAttemptTest, DoesNotFailACallThatCameLater) {
  world_.stop_server();
  world_.start_server();
  world_.net.unblock("a", "s");
  world_.world.run_for(10 * kSecond);
  ASSERT_TRUE(first_ && second_);
  EXPECT_EQ(first_->error().code, Errc::unreachable);
  EXPECT_TRUE(second_->ok()) << second_->error().message;
  EXPECT_EQ(connects(world_.client_metrics, "unreachable"), 1u);
  EXPECT_EQ(connects(world_.client_metrics, "ok"), 1u);
}

TEST_F(OlderAttemptTest, LaterCallsShareTheNextOneAndItsError) {
  world_.stop_server();
  std::optional<Result<wire::PingReply>> third;
  begin(third);
  world_.net.unblock("a", "s");
  world_.world.run_for(10 * kSecond);
  ASSERT_TRUE(first_ && second_ && third);
  EXPECT_EQ(first_->error().code, Errc::unreachable);
  for (const auto* later : {&second_, &third}) {
    EXPECT_EQ((*later)->error().code, Errc::unreachable);
    EXPECT_NE((*later)->error().message.find("Connection refused"), std::string::npos)
        << (*later)->error().message;
  }
  EXPECT_EQ(connects(world_.client_metrics, "unreachable"), 2u);
}

TEST_F(OlderAttemptTest, ACloseEndsTheCallsThatWait) {
  run_task(world_.loop, client_.client.close());
  world_.world.run_for(kSecond);
  ASSERT_TRUE(first_ && second_);
  for (const auto* call : {&first_, &second_}) {
    EXPECT_EQ((*call)->error().code, Errc::unreachable);
    EXPECT_NE((*call)->error().message.find("the client was closed"), std::string::npos)
        << (*call)->error().message;
  }
  world_.net.unblock("s", "a");
}

TEST(ClientTest, ADeadlineBetweenAttemptsNamesTheLastFailure) {
  RpcWorld world;
  world.stop_server();
  TestClient a(world, "a");
  for (int i = 0; i < 6; i++) EXPECT_EQ(a.ping().error().code, Errc::unreachable);
  const auto reply = a.ping({}, 10 * kMillisecond);  // the pause is longer by now
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::deadline);
  EXPECT_NE(reply.error().message.find("no connection in time"), std::string::npos);
  EXPECT_NE(reply.error().message.find("Connection refused"), std::string::npos)
      << reply.error().message;
}

// A machine that does not answer at all: the attempt has a limit of its own, which is not a
// deadline that any caller has set.
TEST(ClientTest, AServerThatDoesNotAnswerIsUnreachable) {
  RpcWorld world;
  TestClient a(world, "a");
  for (const bool in_handshake : {false, true}) {
    if (in_handshake) {
      constexpr int64_t kOneWayNs = kSecond;
      world.net.set_default_link({.delay_min_ns = kOneWayNs, .delay_max_ns = kOneWayNs});
    } else {
      world.net.block("a", "s");
    }
    const int64_t began = world.loop.now_ns();
    Gate gate(world.loop);
    std::optional<Result<wire::PingReply>> reply;
    gate.spawn(store(call_method(a.client, kPing, wire::PingRequest(), INT64_MAX), reply));
    world.world.run_for(5 * kSecond / 2);
    world.net.block("a", "s");
    while (!reply && world.loop.now_ns() - began < 60 * kSecond) world.world.run_for(kSecond);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error().code, Errc::unreachable);
    EXPECT_NE(reply->error().message.find(in_handshake ? "the handshake did not end"
                                                       : "no answer to a connect"),
              std::string::npos)
        << reply->error().message;
    world.net.unblock("a", "s");
  }
}

TEST(ClientTest, EveryCallTriesARefusedConnectionAgain) {
  RpcWorld world;
  TestClient a(world, "a");
  a.context.self.version = 1;
  EXPECT_EQ(a.ping().error().code, Errc::refused);
  world.world.run_for(60 * kSecond);
  EXPECT_EQ(connects(world.client_metrics, "refused"), 1u);  // nobody asked meanwhile
  a.context.self.version = net::kProtocolVersion;
  EXPECT_TRUE(a.ping().ok());
}

TEST(ClientTest, ACallDoesNotWaitForAConnectionBeyondItsDeadline) {
  RpcWorld world;
  TestClient a(world, "a");
  world.net.block("a", "s");
  const int64_t began = world.loop.now_ns();
  const auto reply = a.ping({}, 2 * kSecond);
  EXPECT_EQ(reply.error().code, Errc::deadline);
  EXPECT_LT(world.loop.now_ns() - began, 3 * kSecond);
  world.net.unblock("a", "s");
}

TEST(ClientTest, ACloseEndsTheChannelAndItsCalls) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 60'000);
  run_task(world.loop, a.client.close());
  world.world.run_for(100 * kMillisecond);
  ASSERT_TRUE(ping.reply.has_value());
  EXPECT_EQ(ping.reply->error().code, Errc::unreachable);
  EXPECT_EQ(world.server->connections(), 0u);
}

// Pauses between attempts, for so many that fail one after the other.
std::vector<int64_t> pauses(RpcWorld& world, TestClient& client, size_t count) {
  std::vector<int64_t> found;
  EXPECT_FALSE(client.ping().ok());  // at once
  for (size_t i = 0; i < count; i++) {
    const int64_t began = world.loop.now_ns();
    EXPECT_FALSE(client.ping({}, 60 * kSecond).ok());
    found.push_back(world.loop.now_ns() - began);
  }
  return found;
}

TEST(ClientTest, PausesDoubleUpToTheLastWithJitterAndBeginAnewAfterASuccess) {
  constexpr int64_t kConnectNs = kMillisecond;  // at most what an attempt itself takes here
  std::set<int64_t> firsts;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    RpcWorld world(seed);
    TestClient a(world, "a");
    for (int round = 0; round < 2; round++) {
      world.stop_server();
      world.world.run_for(100 * kMillisecond);
      int64_t expected = kBackoffFirstNs;
      const auto found = pauses(world, a, 10);
      for (const int64_t pause : found) {
        EXPECT_GE(pause, expected / 2);
        EXPECT_LE(pause, expected + kConnectNs);
        expected = std::min(2 * expected, kBackoffLastNs);
      }
      firsts.insert(found[0] / kMillisecond);
      world.start_server();
      EXPECT_TRUE(a.ping({}, 60 * kSecond).ok());
    }
  }
  EXPECT_GE(firsts.size(), 10u);
}

TEST(ClientTest, AttemptsBackOff) {
  RpcWorld world;
  world.stop_server();
  TestClient a(world, "a");
  const int64_t began = world.loop.now_ns();
  int attempts = 0;
  while (world.loop.now_ns() - began < 60 * kSecond) {
    EXPECT_EQ(a.ping({}, 60 * kSecond).error().code, Errc::unreachable);
    attempts++;
  }
  EXPECT_GE(attempts, 12);
  EXPECT_LE(attempts, 40);
}

}  // namespace
}  // namespace ff::rpc
