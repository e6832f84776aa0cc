// The handshake between servers and clients: versions, users, and peers that violate the protocol.
#include <gtest/gtest.h>

#include <string>

#include "rpc_world.h"

namespace ff::rpc {
namespace {

uint64_t refused_count(RpcWorld& world, std::string_view code) {
  return series(world.server_metrics, fmt::format("ff_rpc_refused_total{{code=\"{}\"}}", code));
}

TEST(HandshakeTest, WithoutAKeyOnlyThisMachineMayCall) {
  RpcWorld world;
  const auto transport = world.net.transport("s2", std::nullopt);
  Server open(world.loop, *transport, world.router, world.server_metrics,
              RpcWorld::identity("server"));
  const auto at = open.listen({"s2", 7000, ""});
  ASSERT_FALSE(at.ok());
  EXPECT_EQ(at.error().code, Errc::refused);
  EXPECT_NE(at.error().hint.find("--key"), std::string::npos);
  EXPECT_TRUE(is_local({"127.0.0.1", 1, ""}));
  EXPECT_TRUE(is_local({"::1", 1, ""}));
  EXPECT_TRUE(is_local({"", 0, "@x"}));
  EXPECT_FALSE(is_local({"", 1, ""}));
  EXPECT_FALSE(is_local({"10.0.0.1", 1, ""}));
  run_task(world.loop, open.close(0));
}

// The probe's methods are not for users.
TEST(HandshakeTest, AUserIsLetInAndKnown) {
  RpcWorld world;
  TestClient client(world, "client", auth::user_entity({1000, 7}));
  const auto reply = client.ping();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::refused);
  EXPECT_NE(reply.error().message.find("probe.ping is not for the role 'user'"), std::string::npos)
      << reply.error().message;
  EXPECT_NE(reply.error().message.find("user/u1000"), std::string::npos) << reply.error().message;
  EXPECT_EQ(refused_count(world, "refused"), 0u);
}

TEST(HandshakeTest, AnotherVersionIsRefusedByWhicheverSideSeesItFirst) {
  for (const uint32_t theirs : {0u, 1u, 3u, 60'000u}) {
    RpcWorld world;
    TestClient other(world, "other");
    other.context.self.version = theirs;
    other.context.self.software = "ff of another age";
    const auto reply = other.ping();
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, Errc::refused);
    const bool older = theirs < net::kProtocolVersion;
    EXPECT_NE(reply.error().message.find(older ? "the other side is older" : "this side is older"),
              std::string::npos)
        << reply.error().message;
    EXPECT_NE(reply.error().message.find("ff of another age"), std::string::npos);
  }
}

// Sends `bytes` as the first thing on a connection; gives how the server ended it.
Task<Result<void>> say(RpcWorld& world, net::Transport& transport, net::Frame frame) {
  FF_CO_TRY(auto connection, co_await raw_connection(world, transport));
  connection->send(frame.head, frame.message);
  for (;;) FF_CO_TRY(co_await connection->receive());
}

TEST(HandshakeTest, NothingElseComesFirst) {
  RpcWorld world;
  TestClient a(world, "a");
  for (const auto kind : {net::FrameKind::call, net::FrameKind::ping, net::FrameKind::hello}) {
    net::Frame frame{.head = {.kind = kind, .call = 1, .method = 1}, .message = "\xff\xff"};
    const auto end = run_task(world.loop, say(world, *a.transport, std::move(frame)));
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, Errc::unreachable);
  }
  EXPECT_EQ(refused_count(world, "corrupt"), 3u);
  EXPECT_EQ(world.server->connections(), 0u);
  EXPECT_TRUE(a.ping().ok());
}

Task<Result<void>> say_nothing(RpcWorld& world, net::Transport& transport) {
  FF_CO_TRY(auto connection, co_await raw_connection(world, transport));
  FF_CO_TRY(co_await connection->receive());
  co_return {};
}

TEST(HandshakeTest, ASilentClientIsSentAway) {
  RpcWorld world;
  TestClient a(world, "a");
  const int64_t began = world.loop.now_ns();
  const auto end = run_task(world.loop, say_nothing(world, *a.transport));
  EXPECT_EQ(end.error().code, Errc::unreachable);
  EXPECT_LE(world.loop.now_ns() - began, 12 * kSecond);
  EXPECT_EQ(refused_count(world, "deadline"), 1u);
}

TEST(HandshakeTest, ConnectionsAreBounded) {
  RpcWorld world(1, {.connection = {}, .connections_max = 2});
  TestClient a(world, "a");
  TestClient b(world, "b");
  TestClient c(world, "c");
  ASSERT_TRUE(a.ping().ok());
  ASSERT_TRUE(b.ping().ok());
  EXPECT_EQ(c.ping().error().code, Errc::unreachable);
  EXPECT_EQ(refused_count(world, "busy"), 1u);
  EXPECT_TRUE(a.ping().ok());
}

}  // namespace
}  // namespace ff::rpc
