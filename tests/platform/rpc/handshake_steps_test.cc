// Each step of the handshake by hand: the proofs of handshake.h, and peers that send something else
// at each step.
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

// The formula of handshake.h, written a second time.
std::string expected_proof(const auth::Key& key, std::string_view side, uint32_t client_version,
                           uint32_t server_version, const std::string& client_nonce,
                           const std::string& server_nonce) {
  std::string said = std::string("ff ") + std::string(side) + "|";
  for (const uint32_t version : {client_version, server_version}) {
    for (int byte = 0; byte < 4; byte++) said += static_cast<char>(version >> (8 * byte));
  }
  said += client_nonce + server_nonce;
  const auth::Key proof = auth::hmac_sha256(key, as_bytes(said));
  return std::string(as_text(proof));
}

const auth::Key kKey = key_of(1);
const std::string kNonce(32, 'n');  // the script's own
const auth::TokenId kUser{1000, 7};

// One end shakes hands, the script is the other.
class HandshakeStepsTest : public testing::Test {
 protected:
  Identity identity(std::optional<auth::Key> key) {
    return {.name = "me", .software = "ff test", .key = key, .nonces = &rng_};
  }
  void begin(bool as_client, std::optional<auth::Key> key = kKey) {
    begin_as(as_client, identity(key));
  }
  void begin_as(bool as_client, Identity self) {
    gate_.reset();
    peer_.reset();
    script_.emplace();
    gate_.emplace(script_->loop);
    gate_->spawn(as_client ? store(client_handshake(*script_->connection, self), peer_)
                           : store(server_handshake(*script_->connection, self, 55), peer_));
    script_->settle();
  }
  // A client with a token.
  Identity user_identity(auth::TokenId user = kUser) {
    Identity self = identity(auth::user_key(kKey, user));
    self.user = user;
    return self;
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
  wire::Handshake client_hello(bool with_key = true) {
    wire::Handshake step;
    step.mutable_client_hello()->set_wire_version(net::kProtocolVersion);
    step.mutable_client_hello()->set_software("ff script");
    step.mutable_client_hello()->set_name("other");
    step.mutable_client_hello()->set_nonce(kNonce);
    if (with_key) step.mutable_client_hello()->set_key_id("cluster");
    return step;
  }
  wire::Handshake user_hello(auth::TokenId user = kUser) {
    wire::Handshake step = client_hello();
    step.mutable_client_hello()->set_key_id("user");
    step.mutable_client_hello()->set_has_user(true);
    step.mutable_client_hello()->set_uid(user.uid);
    step.mutable_client_hello()->set_serial(user.serial);
    return step;
  }
  // What a client says third, to the server that has begun.
  static wire::Handshake client_proof(const auth::Key& key, const wire::Handshake& answered) {
    wire::Handshake step;
    step.mutable_client_proof()->set_proof(
        expected_proof(key, "client", 1, 1, kNonce, answered.server_hello().nonce()));
    return step;
  }
  wire::Handshake server_hello(const wire::Handshake& asked, const auth::Key& key = kKey) {
    wire::Handshake step;
    step.mutable_server_hello()->set_wire_version(net::kProtocolVersion);
    step.mutable_server_hello()->set_software("ff script");
    step.mutable_server_hello()->set_name("other");
    step.mutable_server_hello()->set_nonce(kNonce);
    step.mutable_server_hello()->set_proof(
        expected_proof(key, "server", 1, 1, asked.client_hello().nonce(), kNonce));
    return step;
  }
  static wire::Handshake welcome(uint32_t calls_max = 9) {
    wire::Handshake step;
    step.mutable_welcome()->set_calls_max(calls_max);
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

  SeededRng rng_{5};
  std::optional<Scripted> script_;
  std::optional<Result<Peer>> peer_;
  std::optional<Gate> gate_;
};

TEST_F(HandshakeStepsTest, AClientFollowsTheProtocol) {
  begin(true);
  const auto hello = heard();
  ASSERT_TRUE(hello.has_client_hello());
  EXPECT_EQ(hello.client_hello().wire_version(), 1u);
  EXPECT_EQ(hello.client_hello().key_id(), "cluster");
  EXPECT_EQ(hello.client_hello().nonce().size(), 32u);
  say(server_hello(hello));
  const auto proof = heard();
  EXPECT_EQ(proof.client_proof().proof(),
            expected_proof(kKey, "client", 1, 1, hello.client_hello().nonce(), kNonce));
  EXPECT_FALSE(peer_.has_value());
  say(welcome());
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
  EXPECT_EQ(hello.server_hello().wire_version(), 1u);
  EXPECT_EQ(hello.server_hello().nonce().size(), 32u);
  const std::string& nonce = hello.server_hello().nonce();
  EXPECT_EQ(hello.server_hello().proof(), expected_proof(kKey, "server", 1, 1, kNonce, nonce));
  wire::Handshake proof;
  proof.mutable_client_proof()->set_proof(expected_proof(kKey, "client", 1, 1, kNonce, nonce));
  say(proof);
  EXPECT_EQ(heard().welcome().calls_max(), 55u);
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_TRUE((*peer_)->has_key);
  EXPECT_TRUE((*peer_)->trusted());
  EXPECT_FALSE((*peer_)->user);
  EXPECT_EQ((*peer_)->name, "other");

  // What was said once proves nothing the next time, even to the same nonce of the client.
  begin(false);
  say(client_hello());
  (void)heard();
  say(proof);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it does not hold the cluster key of me");
}

TEST_F(HandshakeStepsTest, ARecordedServerProvesNothing) {
  begin(true);
  const auto recorded = server_hello(heard());
  begin(true);
  (void)heard();
  say(recorded);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it does not hold the cluster key of me");
}

TEST_F(HandshakeStepsTest, WithoutKeysProofsAreEmpty) {
  begin(true, std::nullopt);
  const auto hello = heard();
  EXPECT_EQ(hello.client_hello().key_id(), "");
  auto answer = server_hello(hello);
  answer.mutable_server_hello()->clear_proof();
  say(answer);
  EXPECT_EQ(heard().client_proof().proof(), "");
  say(welcome());
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_FALSE((*peer_)->has_key);

  begin(false, std::nullopt);
  say(client_hello(false));
  EXPECT_EQ(heard().server_hello().proof(), "");
  wire::Handshake proof;
  proof.mutable_client_proof();
  say(proof);
  EXPECT_TRUE(heard().has_welcome());
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_FALSE((*peer_)->has_key);
  EXPECT_TRUE((*peer_)->trusted());  // it is on this machine
}

TEST_F(HandshakeStepsTest, AClientProvesItsToken) {
  begin_as(true, user_identity());
  const auto hello = heard();
  EXPECT_EQ(hello.client_hello().key_id(), "user");
  EXPECT_TRUE(hello.client_hello().has_user());
  EXPECT_EQ(hello.client_hello().uid(), 1000u);
  EXPECT_EQ(hello.client_hello().serial(), 7u);
  const auth::Key key = auth::user_key(kKey, kUser);
  EXPECT_EQ(hello.SerializeAsString().find(as_text(key)), std::string::npos);
  say(server_hello(hello, key));
  EXPECT_EQ(heard().client_proof().proof(),
            expected_proof(key, "client", 1, 1, hello.client_hello().nonce(), kNonce));
  say(welcome());
  ASSERT_TRUE(peer_ && peer_->ok());
  EXPECT_TRUE((*peer_)->has_key);
}

TEST_F(HandshakeStepsTest, AServerTakesTheUserFromTheProof) {
  begin(false);
  say(user_hello());
  const auto answered = heard();
  const auth::Key key = auth::user_key(kKey, kUser);
  EXPECT_EQ(answered.server_hello().proof(),
            expected_proof(key, "server", 1, 1, kNonce, answered.server_hello().nonce()));
  EXPECT_FALSE(peer_.has_value());
  say(client_proof(key, answered));
  EXPECT_EQ(heard().welcome().calls_max(), 55u);
  ASSERT_TRUE(peer_ && peer_->ok());
  ASSERT_TRUE((*peer_)->user);
  EXPECT_EQ(*(*peer_)->user, kUser);
  EXPECT_FALSE((*peer_)->has_key);
  EXPECT_FALSE((*peer_)->trusted());
}

TEST_F(HandshakeStepsTest, ATokenProvesOneUserAndOneSerial) {
  for (const auth::TokenId other :
       {auth::TokenId{1000, 8}, auth::TokenId{1001, 7}, auth::TokenId{0, 7}}) {
    begin(false);
    say(user_hello(other));
    say(client_proof(auth::user_key(kKey, kUser), heard()));
    EXPECT_TRUE(heard().has_refusal());
    expect_failed(Errc::refused, fmt::format("it does not hold token {} of user {} for the cluster",
                                             other.serial, other.uid));
  }
  // Neither does the key of a user stand for the cluster's, nor the other way round.
  begin(false);
  say(client_hello());
  say(client_proof(auth::user_key(kKey, kUser), heard()));
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it does not hold the cluster key of me");

  begin(false);
  say(user_hello());
  say(client_proof(kKey, heard()));
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it does not hold token 7 of user 1000");
}

TEST_F(HandshakeStepsTest, WhoseKeyItIsMustFitTheHello) {
  begin(false);
  auto hello = user_hello();
  hello.mutable_client_hello()->set_key_id("cluster");
  say(hello);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it comes without the cluster key of me");

  begin(false);
  hello = client_hello();
  hello.mutable_client_hello()->set_key_id("user");
  say(hello);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it comes without the cluster key of me");
}

TEST_F(HandshakeStepsTest, AServerWithoutAKeyRefusesTokens) {
  begin(false, std::nullopt);
  say(user_hello());
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it holds a token, and me has no key");

  begin(false, std::nullopt);
  auto hello = user_hello();
  hello.mutable_client_hello()->clear_key_id();
  say(hello);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it holds a token, and me has no key");
}

TEST_F(HandshakeStepsTest, AUserLooksAtTheServerToo) {
  for (const auth::Key& key : {kKey, key_of(2), auth::user_key(kKey, {1000, 8})}) {
    begin_as(true, user_identity());
    say(server_hello(heard(), key));
    EXPECT_TRUE(heard().has_refusal());
    expect_failed(Errc::refused, "it does not hold the cluster key that the token of me is from");
  }
  begin_as(true, user_identity());
  auto answer = server_hello(heard(), auth::user_key(kKey, kUser));
  answer.mutable_server_hello()->set_wire_version(2);
  say(answer);
  expect_failed(Errc::refused, "this side is older");

  begin(false);
  auto hello = user_hello();
  hello.mutable_client_hello()->set_wire_version(0);
  say(hello);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "the other side is older");
}

// A newer connection ends older ones of the same client: one user must not end another's.
TEST_F(HandshakeStepsTest, CallersOfDifferentUsersAreDifferent) {
  const auto caller_of = [&](wire::Handshake hello, const auth::Key& key) {
    hello.mutable_client_hello()->set_caller("0123456789abcdef");
    begin(false);
    say(hello);
    say(client_proof(key, heard()));
    (void)heard();
    return peer_ && peer_->ok() ? (*peer_)->client.id : std::string("(refused)");
  };
  const auth::TokenId other{1000, 8};
  const std::string trusted = caller_of(client_hello(), kKey);
  const std::string one = caller_of(user_hello(), auth::user_key(kKey, kUser));
  EXPECT_EQ(trusted, "0123456789abcdef");
  EXPECT_EQ(one, caller_of(user_hello(), auth::user_key(kKey, kUser)));
  EXPECT_NE(one, trusted);
  EXPECT_NE(one, caller_of(user_hello(other), auth::user_key(kKey, other)));
}

TEST_F(HandshakeStepsTest, AKeyOnOneSideOnlyIsRefused) {
  begin(false, std::nullopt);
  say(client_hello());
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it holds a key, and me has none");

  begin(false);
  say(client_hello(false));
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it comes without the cluster key of me");

  begin(true);
  auto answer = server_hello(heard());
  answer.mutable_server_hello()->clear_proof();
  say(answer);
  EXPECT_TRUE(heard().has_refusal());
  expect_failed(Errc::refused, "it does not hold the cluster key of me");
}

TEST_F(HandshakeStepsTest, TheClientLooksAtTheVersionToo) {
  begin(true);
  auto answer = server_hello(heard());
  answer.mutable_server_hello()->set_wire_version(2);
  say(answer);
  expect_failed(Errc::refused,
                "it uses protocol version 2 (ff script), ff test here uses 1: this side is older");
}

TEST_F(HandshakeStepsTest, WhatIsNotTheNextStepIsAnError) {
  begin(true);
  (void)heard();
  say(welcome());
  expect_failed(Errc::corrupt, "a step of the handshake out of order");

  begin(false);
  say(welcome());
  expect_failed(Errc::corrupt, "a step of the handshake out of order");

  begin(false);
  script_->stream->feed({.kind = net::FrameKind::call, .call = 1});
  script_->settle();
  expect_failed(Errc::corrupt, "the handshake was left out");
}

TEST_F(HandshakeStepsTest, ValuesThatCannotBeAreErrors) {
  for (const size_t size : {0, 31, 33}) {
    begin(true);
    auto answer = server_hello(heard());
    answer.mutable_server_hello()->set_nonce(std::string(size, 'n'));
    say(answer);
    expect_failed(Errc::corrupt, fmt::format("a nonce of {} bytes", size));

    begin(false);
    auto hello = client_hello();
    hello.mutable_client_hello()->set_nonce(std::string(size, 'n'));
    say(hello);
    expect_failed(Errc::corrupt, fmt::format("a nonce of {} bytes", size));
  }
  begin(true);
  say(server_hello(heard()));
  say(welcome(0));
  expect_failed(Errc::corrupt, "it allows no calls at all");
}

TEST_F(HandshakeStepsTest, NamesOfPeersAreSafeToPrintAndShort) {
  begin(true);
  auto answer = server_hello(heard());
  answer.mutable_server_hello()->set_name("evil\x1b[2J" + std::string(10'000, 'x'));
  answer.mutable_server_hello()->set_software("\x1b[1mff\n");
  say(answer);
  (void)heard();
  say(welcome());
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
  say(client_hello(false));
  EXPECT_FALSE(peer_.has_value());  // time for the refusal to leave
  script_->world.run_for(2 * kSecond);
  expect_failed(Errc::refused, "it comes without the cluster key of me");
}

}  // namespace
}  // namespace ff::rpc
