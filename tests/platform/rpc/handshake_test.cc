// Authentication: keys, versions, and peers that violate the protocol.
#include <gtest/gtest.h>

#include <string>

#include "rpc_world.h"

namespace ff::rpc {
namespace {

uint64_t refused_count(RpcWorld& world, std::string_view code) {
  return series(world.server_metrics, fmt::format("ff_rpc_refused_total{{code=\"{}\"}}", code));
}

TEST(HandshakeTest, AWrongKeyIsRefusedAndNamesBothSides) {
  RpcWorld world;
  TestClient good(world, "good");
  TestClient bad(world, "bad", key_of(2));
  ASSERT_TRUE(good.ping().ok());
  const auto reply = bad.ping();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::refused);
  EXPECT_NE(reply.error().message.find("server at s:7000"), std::string::npos)
      << reply.error().message;
  EXPECT_NE(reply.error().message.find("cluster key of bad"), std::string::npos);
  world.world.run_for(kSecond);
  EXPECT_EQ(refused_count(world, "refused"), 1u);
  EXPECT_TRUE(good.ping().ok());
}

TEST(HandshakeTest, NoKeyAgainstAKeyIsRefused) {
  RpcWorld world;
  TestClient none(world, "none", std::nullopt);
  const auto reply = none.ping();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::refused);
  EXPECT_NE(reply.error().message.find("without the cluster key"), std::string::npos)
      << reply.error().message;
}

TEST(HandshakeTest, WithoutAKeyOnlyThisMachineMayCall) {
  RpcWorld world;
  world.stop_server();
  Server open(world.loop, *world.transport, world.router, world.server_metrics,
              world.identity("server", std::nullopt));
  const auto at = open.listen({"s", 7000, ""});
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

// The probe's methods are for trusted callers.
TEST(HandshakeTest, AUserIsLetInAndKnown) {
  RpcWorld world;
  const auth::TokenId user{1000, 7};
  TestClient client(world, "client", auth::user_key(key_of(1), user));
  client.context.self.user = user;
  const auto reply = client.ping();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Errc::refused);
  EXPECT_NE(reply.error().message.find("probe.ping is not for users"), std::string::npos)
      << reply.error().message;
  EXPECT_NE(reply.error().message.find("user 1000"), std::string::npos) << reply.error().message;
  EXPECT_EQ(refused_count(world, "refused"), 0u);

  TestClient withdrawn(world, "withdrawn", auth::user_key(key_of(1), user));
  withdrawn.context.self.user = auth::TokenId{1000, 8};
  EXPECT_EQ(withdrawn.ping().error().code, Errc::refused);
  world.world.run_for(kSecond);
  EXPECT_EQ(refused_count(world, "refused"), 1u);
}

TEST(HandshakeTest, ATokenServesNobody) {
  RpcWorld world;
  Identity self = world.identity("server", auth::user_key(key_of(1), {1000, 7}));
  self.user = auth::TokenId{1000, 7};
  Server server(world.loop, *world.transport, world.router, world.server_metrics, self);
  const auto at = server.listen({"127.0.0.1", 7001, ""});
  ASSERT_FALSE(at.ok());
  EXPECT_EQ(at.error().code, Errc::usage);
  EXPECT_NE(at.error().hint.find("--key"), std::string::npos);
  run_task(world.loop, server.close(0));
}

TEST(HandshakeTest, AnotherVersionIsRefusedByWhicheverSideSeesItFirst) {
  for (const uint32_t theirs : {0u, 2u, 60'000u}) {
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

// A client that answers with a proof it has heard: that of the server.
Task<Result<net::Frame>> reflect(RpcWorld& world, net::Transport& transport) {
  FF_CO_TRY(auto connection, co_await raw_connection(world, transport));
  wire::Handshake hello;
  hello.mutable_client_hello()->set_wire_version(net::kProtocolVersion);
  hello.mutable_client_hello()->set_nonce(std::string(32, 'n'));
  hello.mutable_client_hello()->set_key_id("cluster");
  net::FrameHeader head{.kind = net::FrameKind::hello};
  connection->send(head, hello.SerializeAsString());
  FF_CO_TRY(const net::Frame answer, co_await connection->receive());
  wire::Handshake step;
  step.ParseFromString(answer.message);
  wire::Handshake proof;
  proof.mutable_client_proof()->set_proof(step.server_hello().proof());
  connection->send(head, proof.SerializeAsString());
  co_return co_await connection->receive();
}

TEST(HandshakeTest, AReflectedProofIsRefused) {
  RpcWorld world;
  TestClient a(world, "a");
  const auto answer = run_task(world.loop, reflect(world, *a.transport));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  wire::Handshake step;
  ASSERT_TRUE(step.ParseFromString(answer->message));
  EXPECT_TRUE(step.has_refusal());
  EXPECT_EQ(refused_count(world, "refused"), 1u);
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
