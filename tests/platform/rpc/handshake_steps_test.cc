// Each step of the handshake by hand, and peers that send something else at each step.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/rpc/error_wire.h"
#include "rpc_world.h"
#include "scripted_stream.h"

namespace ff::rpc {
namespace {

const auth::TokenId kUser{1000, 7};

// One end shakes hands, the script is the other.
class HandshakeStepsTest : public testing::Test {
 protected:
  // `client`: whom the transport has proven to be the client.
  void begin(bool as_client, std::optional<auth::Entity> client = auth::admin_entity("a")) {
    gate_.reset();
    peer_.reset();
    script_.emplace();
    script_->connection->set_proof(
        {.has_key = client.has_value(), .client = as_client ? std::nullopt : client});
    gate_.emplace(script_->loop);
    const Identity self{.name = "me", .software = "ff test"};
    ServerTerms terms{.calls_max = 55};
    terms.choose_shard = [] { return ShardChoice{.count = 4, .shard = 3}; };
    gate_->spawn(
        as_client ? store(client_handshake(*script_->connection, self), peer_)
                  : store(server_handshake(*script_->connection, self, std::move(terms)), peer_));
    script_->settle();
  }
  void TearDown() override { gate_.reset(); }
  void say(const wire::Handshake& step) {
    script_->stream->feed({.kind = net::FrameKind::hello}, step.SerializeAsString());
    script_->settle();
  }
  // What was said last.
  wire::Handshake heard() {
    wire::Handshake step;
    const auto sent = script_->sent();
    EXPECT_EQ(sent.size(), 1u);
    if (!sent.empty()) {
      EXPECT_EQ(sent.back().head.kind, net::FrameKind::hello);
      EXPECT_TRUE(step.ParseFromString(sent.back().message));
    }
    return step;
  }
  static wire::Handshake client_hello() {
    wire::Handshake step;
    step.mutable_client_hello()->set_wire_version(net::kProtocolVersion);
    step.mutable_client_hello()->set_software("ff script");
    step.mutable_client_hello()->set_name("other");
    return step;
  }
  static wire::Handshake server_hello(uint32_t calls_max = 9) {
    wire::Handshake step;
    step.mutable_server_hello()->set_wire_version(net::kProtocolVersion);
    step.mutable_server_hello()->set_software("ff script");
    step.mutable_server_hello()->set_name("other");
    step.mutable_server_hello()->set_calls_max(calls_max);
    return step;
  }
  void expect_failed(Errc code, std::string_view words) {
    ASSERT_TRUE(peer_.has_value());
    ASSERT_FALSE(peer_->ok());
    EXPECT_EQ(peer_->error().code, code);
    EXPECT_NE(peer_->error().message.find(words), std::string::npos) << peer_->error().message;
    EXPECT_NE(peer_->error().message.find("script"), std::string::npos) << peer_->error().message;
    EXPECT_TRUE(script_->connection->failed());
    EXPECT_EQ(script_->connection->fault(),
              code == Errc::corrupt ? net::FrameFault::handshake : net::FrameFault::none);
  }

  std::optional<Scripted> script_;
  std::optional<Result<Peer>> peer_;
  std::optional<Gate> gate_;
};

TEST_F(HandshakeStepsTest, AClientFollowsTheProtocol) {
  begin(true);
  const auto hello = heard();
  ASSERT_TRUE(hello.has_client_hello());
  EXPECT_EQ(hello.client_hello().wire_version(), net::kProtocolVersion);
  EXPECT_EQ(hello.client_hello().name(), "me");
  EXPECT_FALSE(peer_.has_value());
  say(server_hello());
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_EQ((*peer_)->text(), "other at script");
  EXPECT_EQ((*peer_)->software, "ff script");
  EXPECT_TRUE((*peer_)->has_key);
  EXPECT_EQ((*peer_)->calls_max, 9u);
  EXPECT_FALSE(script_->connection->failed());
}

TEST_F(HandshakeStepsTest, AServerFollowsTheProtocol) {
  begin(false);
  say(client_hello());
  const auto hello = heard();
  EXPECT_EQ(hello.server_hello().wire_version(), net::kProtocolVersion);
  EXPECT_EQ(hello.server_hello().calls_max(), 55u);
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_TRUE((*peer_)->has_key);
  EXPECT_TRUE((*peer_)->trusted());
  EXPECT_FALSE((*peer_)->user());
  EXPECT_EQ((*peer_)->name, "other");
}

TEST_F(HandshakeStepsTest, AServerChoosesTheShardOfAClientThatAnyMayServe) {
  for (const bool any : {false, true}) {
    begin(false);
    wire::Handshake hello = client_hello();
    hello.mutable_client_hello()->set_any_shard(any);
    say(hello);
    const auto answer = heard();
    EXPECT_EQ(answer.server_hello().shards(), any ? 4u : 0u);
    EXPECT_EQ(answer.server_hello().shard(), any ? 3u : 0u);
  }
  for (const uint32_t shard : {3u, 4u}) {
    begin(true);
    (void)heard();
    wire::Handshake hello = server_hello();
    hello.mutable_server_hello()->set_shards(4);
    hello.mutable_server_hello()->set_shard(shard);
    say(hello);
    ASSERT_TRUE(peer_ && peer_->ok());
    EXPECT_EQ((*peer_)->choice.count, shard == 3 ? 4u : 0u);  // 4: there is none
    EXPECT_EQ((*peer_)->choice.shard, shard == 3 ? 3u : 0u);
  }
}

TEST_F(HandshakeStepsTest, WithoutKeysThePeerIsOnThisMachine) {
  begin(true, std::nullopt);
  (void)heard();
  say(server_hello());
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_FALSE((*peer_)->has_key);

  begin(false, std::nullopt);
  say(client_hello());
  (void)heard();
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_FALSE((*peer_)->has_key);
  EXPECT_TRUE((*peer_)->trusted());
}

// Nothing that the client says can change it.
TEST_F(HandshakeStepsTest, AServerTakesTheUserFromTheTransport) {
  begin(false, auth::user_entity(kUser));
  say(client_hello());
  (void)heard();
  ASSERT_TRUE(peer_ && peer_->ok());
  ASSERT_TRUE((*peer_)->user());
  EXPECT_EQ(*(*peer_)->user(), kUser);
  EXPECT_FALSE((*peer_)->trusted());
}

// A newer connection ends older ones of the same client: one entity must not end another's.
TEST_F(HandshakeStepsTest, CallersOfDifferentEntitiesAreDifferent) {
  const auto caller_of = [&](std::optional<auth::Entity> client) {
    wire::Handshake hello = client_hello();
    hello.mutable_client_hello()->set_caller("0123456789abcdef");
    begin(false, std::move(client));
    say(hello);
    (void)heard();
    return peer_ && peer_->ok() ? (*peer_)->client.id : std::string("(refused)");
  };
  const std::string one = caller_of(auth::user_entity(kUser));
  EXPECT_EQ(one, caller_of(auth::user_entity(kUser)));
  EXPECT_NE(one, caller_of(auth::user_entity({1000, 8})));
  EXPECT_NE(one, caller_of(auth::admin_entity("a")));
  EXPECT_NE(caller_of(auth::admin_entity("b")), caller_of(auth::admin_entity("a")));
  EXPECT_EQ(caller_of(std::nullopt), "0123456789abcdef");
}

TEST_F(HandshakeStepsTest, BothLookAtTheVersion) {
  begin(true);
  (void)heard();
  auto answer = server_hello();
  answer.mutable_server_hello()->set_wire_version(3);
  say(answer);
  expect_failed(Errc::refused,
                "it uses protocol version 3 (ff script), ff test here uses 2: this side is older");

  begin(false);
  auto hello = client_hello();
  hello.mutable_client_hello()->set_wire_version(1);
  say(hello);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "the other side is older");
}

TEST_F(HandshakeStepsTest, WhatIsNotTheNextStepIsAnError) {
  begin(true);
  (void)heard();
  say(client_hello());
  expect_failed(Errc::corrupt, "a step of the handshake out of order");

  begin(false);
  say(server_hello());
  expect_failed(Errc::corrupt, "a step of the handshake out of order");

  begin(false);
  script_->stream->feed({.kind = net::FrameKind::call, .call = 1});
  script_->settle();
  expect_failed(Errc::corrupt, "the handshake was left out");
}

TEST_F(HandshakeStepsTest, AServerThatAllowsNoCallsIsAnError) {
  begin(true);
  (void)heard();
  say(server_hello(0));
  expect_failed(Errc::corrupt, "it allows no calls at all");
}

TEST_F(HandshakeStepsTest, NamesOfPeersAreSafeToPrintAndShort) {
  begin(true);
  (void)heard();
  auto answer = server_hello();
  answer.mutable_server_hello()->set_name("evil\x1b[2J" + std::string(10'000, 'x'));
  answer.mutable_server_hello()->set_software("\x1b[1mff\n");
  say(answer);
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_TRUE((*peer_)->name.starts_with("evil"));
  for (const std::string& text : {(*peer_)->name, (*peer_)->software}) {
    EXPECT_EQ(text.find_first_of("\x1b\n"), std::string::npos) << text;
    EXPECT_LT(text.size(), 600u);
  }
}

TEST_F(HandshakeStepsTest, ARefusalIsPassedOnWithItsCode) {
  begin(true);
  (void)heard();
  wire::Handshake refusal;
  refusal.mutable_refusal()->mutable_error()->set_code("busy");
  refusal.mutable_refusal()->mutable_error()->set_message("too \x1b many");
  say(refusal);
  expect_failed(Errc::busy, "script refuses: too ");
  EXPECT_EQ(peer_->error().message.find('\x1b'), std::string::npos);
}

TEST_F(HandshakeStepsTest, ASilentPeerIsGivenUpByBothSides) {
  for (const bool as_client : {true, false}) {
    begin(as_client);
    script_->world.run_for(kHandshakeNs - kSecond);
    EXPECT_FALSE(peer_.has_value());
    script_->world.run_for(2 * kSecond);
    expect_failed(Errc::deadline, "the handshake did not end within 10 s");
  }
}

// A peer that does not read its refusal cannot hold the end up for long.
TEST_F(HandshakeStepsTest, ARefusalIsNotWaitedForWithoutEnd) {
  begin(false);
  script_->stream->blocked = true;
  auto hello = client_hello();
  hello.mutable_client_hello()->set_wire_version(1);
  say(hello);
  EXPECT_FALSE(peer_.has_value());  // time for the refusal to leave
  script_->world.run_for(2 * kSecond);
  expect_failed(Errc::refused, "the other side is older");
}

}  // namespace
}  // namespace ff::rpc
