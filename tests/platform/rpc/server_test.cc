// A complete server: which connections it accepts, and how it shuts down.
#include "platform/rpc/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "rpc_world.h"

namespace ff::rpc {
namespace {

// A connection that is opened and then says nothing.
Task<void> open_silently(RpcWorld& world, net::Transport& transport) {
  const auto connection = co_await raw_connection(world, transport);
  FF_CHECK(connection.ok());
  (void)co_await (*connection)->receive();
}

TEST(ServerTest, HandshakesCountAsConnections) {
  RpcWorld world(1, {.connection = {}, .connections_max = 2});
  TestClient a(world, "a");
  Gate gate(world.loop);
  for (int i = 0; i < 2; i++) gate.spawn(open_silently(world, *a.transport));
  world.world.run_for(kSecond);
  EXPECT_EQ(world.server->connections(), 2u);
  EXPECT_EQ(a.ping().error().code, Errc::unreachable);
  EXPECT_EQ(series(world.server_metrics, "ff_rpc_refused_total{code=\"busy\"}"), 1u);
  EXPECT_EQ(series(world.server_metrics, "ff_rpc_connections"), 2u);
  world.world.run_for(2 * kHandshakeNs);  // they are sent away
  EXPECT_EQ(series(world.server_metrics, "ff_rpc_connections"), 0u);
  EXPECT_TRUE(a.ping().ok());
}

TEST(ServerTest, ANewHandshakeEndsTheOldest) {
  RpcWorld world(1, {.connection = {}, .handshakes_max = 2});
  TestClient a(world, "a");
  Gate gate(world.loop);
  size_t most = 0;
  for (int burst = 0; burst < 10; burst++) {
    for (int i = 0; i < 100; i++) gate.spawn(open_silently(world, *a.transport));
    for (int i = 0; i < 20; i++) {
      world.world.run_for(kMillisecond);
      most = std::max(most, world.server->connections());
    }
    EXPECT_TRUE(a.ping().ok()) << "an honest client comes in between";
  }
  EXPECT_LE(most, 2u + 64u + 1u);
  EXPECT_GT(series(world.server_metrics, "ff_rpc_refused_total{code=\"busy\"}"), 900u);
}

// A connection of the client `id`, its `number`th.
Task<Result<std::unique_ptr<net::Connection>>> connect_as(RpcWorld& world, net::Transport& from,
                                                          std::string id, uint64_t number) {
  FF_CO_TRY(auto connection, co_await raw_connection(world, from));
  auto self = RpcWorld::identity("client");
  ClientInstance instance{.id = std::move(id), .connection = number};
  FF_CO_TRY(co_await client_handshake(*connection, std::move(self), std::move(instance)));
  co_return connection;
}

void send_ping(net::Connection& connection, uint32_t wait_ms) {
  wire::PingRequest request;
  request.set_wait_ms(wait_ms);
  const net::FrameHeader head{.kind = net::FrameKind::call, .call = 1, .method = kPing.number};
  connection.send(head, request.SerializeAsString());
}

TEST(ServerTest, AClientsNewerConnectionEndsItsOlderOnes) {
  RpcWorld world;
  const auto node = world.net.transport("a");
  const auto connect = [&](const std::string& id, uint64_t number) {
    return run_task(world.loop, connect_as(world, *node, id, number)).value();
  };
  const auto older = connect("one", 1);
  const auto other = connect("other", 1);
  send_ping(*older, 1000);
  send_ping(*other, 1000);
  world.world.run_for(100 * kMillisecond);
  const auto newer = connect("one", 2);
  // Nobody listens at the server before the older connection's calls have ended.
  const auto ended = run_task(world.loop, older->receive());
  EXPECT_EQ(ended.error().code, Errc::unreachable);
  send_ping(*newer, 0);
  EXPECT_TRUE(run_task(world.loop, newer->receive()).ok());
  EXPECT_EQ(world.probe.pings(), 1u);
  EXPECT_TRUE(run_task(world.loop, other->receive()).ok());
  EXPECT_EQ(world.probe.pings(), 2u);
  // One that was overtaken on its way.
  const auto late = run_task(world.loop, connect_as(world, *node, "one", 1));
  EXPECT_FALSE(late.ok() && run_task(world.loop, (*late)->receive()).ok());
  send_ping(*newer, 0);
  EXPECT_TRUE(run_task(world.loop, newer->receive()).ok());
}

// Of a transport whose accept() fails at first, as it does when no descriptors are left.
class FlakyListener final : public net::Listener {
 public:
  FlakyListener(std::unique_ptr<net::Listener> inner, int& failures)
      : inner_(std::move(inner)), failures_(failures) {}
  const net::Address& address() const override { return inner_->address(); }
  Task<Result<std::unique_ptr<net::IncomingConnection>>> accept() override {
    if (failures_ > 0) {
      failures_--;
      co_return fail(Errc::failed, "too many open files");
    }
    co_return co_await inner_->accept();
  }

 private:
  std::unique_ptr<net::Listener> inner_;
  int& failures_;
};

class FlakyTransport final : public net::Transport {
 public:
  FlakyTransport(net::Transport& inner, int& failures) : inner_(inner), failures_(failures) {}
  Task<Result<std::unique_ptr<net::Connection>>> connect(Loop& loop, net::Address to,
                                                         auth::Service service) override {
    return inner_.connect(loop, std::move(to), std::move(service));
  }
  auth::Keyring* keyring() const override { return inner_.keyring(); }
  Result<std::unique_ptr<net::Listener>> listen(Loop& loop, const net::Address& at) override {
    FF_TRY(auto inner, inner_.listen(loop, at));
    return std::unique_ptr<net::Listener>(
        std::make_unique<FlakyListener>(std::move(inner), failures_));
  }

 private:
  net::Transport& inner_;
  int& failures_;
};

TEST(ServerTest, AFailedAcceptIsTriedAgainAfterAPause) {
  RpcWorld world;
  world.stop_server();
  int failures = 1000;
  FlakyTransport flaky(*world.transport, failures);
  Server server(world.loop, flaky, world.router, world.server_metrics,
                RpcWorld::identity("server"));
  testing::internal::CaptureStderr();
  ASSERT_TRUE(server.listen({"s", 7000, ""}).ok());
  world.world.run_for(kSecond);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("accept failed"), std::string::npos) << log;
  EXPECT_LT(failures, 1000);
  EXPECT_GT(failures, 900);  // not in a loop without pauses
  failures = 1;
  TestClient a(world, "a");
  EXPECT_TRUE(a.ping().ok());
  run_task(world.loop, server.close(0));
}

TEST(ServerTest, ADrainWaitsUntilTheLastReplyHasLeft) {
  RpcWorld world;
  TestClient a(world, "a");
  ASSERT_TRUE(a.ping().ok());
  world.net.set_link("s", "a", {.bytes_per_second = 1'000'000});
  wire::PingRequest request = slow_ping(500);
  request.set_answer_bytes(1'000'000);
  std::optional<Result<wire::PingReply>> reply;
  Gate gate(world.loop);
  gate.spawn(store(call_method(a.client, kPing, request, INT64_MAX), reply));
  world.world.run_for(100 * kMillisecond);
  const int64_t began = world.loop.now_ns();
  world.stop_server(60 * kSecond);
  EXPECT_LT(world.loop.now_ns() - began, 10 * kSecond);  // no longer than that
  world.world.run_for(10 * kSecond);
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->ok()) << reply->error().message;
}

// Its handshake began before the server was closed, and ends while others are still waited for.
TEST(ServerTest, AClientThatComesDuringADrainIsToldSo) {
  RpcWorld world;
  TestClient a(world, "a");
  const SlowPing ping(a, 5'000);
  constexpr int64_t kOneWayNs = 100 * kMillisecond;
  for (const auto& [from, to] : {std::pair("b", "s"), std::pair("s", "b")}) {
    world.net.set_link(from, to, {.delay_min_ns = kOneWayNs, .delay_max_ns = kOneWayNs});
  }
  TestClient b(world, "b");
  std::optional<Result<wire::PingReply>> late;
  Gate gate(world.loop);
  gate.spawn(store(call_method(b.client, kPing, wire::PingRequest(), INT64_MAX), late));
  world.world.run_for(5 * kOneWayNs / 2);  // connected, in the handshake
  const uint64_t pings = world.probe.pings();
  world.stop_server(60 * kSecond);
  world.world.run_for(kSecond);
  ASSERT_TRUE(ping.reply && late);
  EXPECT_TRUE(ping.reply->ok()) << ping.reply->error().message;
  EXPECT_EQ(late->error().code, Errc::unreachable);
  EXPECT_EQ(world.probe.pings(), pings + 1);  // the slow one
}

}  // namespace
}  // namespace ff::rpc
