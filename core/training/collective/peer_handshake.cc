// peer_handshake.cc: nonces, proofs, and the checks of the accepting node.
#include "training/collective/peer_handshake.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"
#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

constexpr size_t kNonceBytes = 32;
constexpr std::string_view kHello = "ff reduce 1|";  // then a nonce

std::string new_nonce() {
  auth::SecureRng rng;
  std::array<std::byte, kNonceBytes> bytes;
  auth::fill_random(bytes, rng);
  return std::string(as_text(bytes));
}

// Empty without a key.
std::string proof_of(const std::optional<auth::Key>& key, std::string_view side,
                     const std::string& nonces) {
  if (!key) return {};
  const std::string signed_text = "ff reduce " + std::string(side) + "|" + nonces;
  return std::string(as_text(auth::hmac_sha256(*key, as_bytes(signed_text))));
}

bool is_proven(const std::string& expected, std::string_view received) {
  return auth::constant_time_equal(as_bytes(expected), as_bytes(received));
}

Error wrong_key(const net::Connection& connection) {
  Error error = fail(Errc::refused, "{}: it does not hold this job's key", connection.peer());
  error.hint = "Give all ranks the same key file (FF_KEY_FILE).";
  return error;
}

}  // namespace

void send_step(net::Connection& connection, HandshakeStep step, std::string_view message) {
  connection.send({.kind = net::FrameKind::hello, .method = static_cast<uint32_t>(step)}, message);
}

Task<Result<std::string>> receive_step(net::Connection& connection, HandshakeStep wanted) {
  FF_CO_TRY(const net::Frame frame, co_await connection.receive());
  const bool is_hello = frame.head.kind == net::FrameKind::hello;
  if (is_hello && frame.head.method == static_cast<uint32_t>(HandshakeStep::refusal)) {
    const ByteView bytes = as_bytes(frame.message);
    Error error = fail(Errc::refused, "{}",
                       printable(frame.message.substr(std::min<size_t>(1, bytes.size()))));
    if (!bytes.empty() && static_cast<size_t>(bytes[0]) < kErrcCount) {
      error.code = static_cast<Errc>(bytes[0]);
    }
    co_return error;
  }
  if (!is_hello || frame.head.method != static_cast<uint32_t>(wanted)) {
    co_return fail(Errc::corrupt, "{}: the peer is no node of a job", connection.peer());
  }
  co_return frame.message;
}

void send_refusal(net::Connection& connection, const Error& error) {
  std::string message(1, static_cast<char>(error.code));
  send_step(connection, HandshakeStep::refusal, message + error.message);
}

Task<Result<void>> introduce(net::Connection& connection, const JobTerms& terms,
                             const WorldNode& self) {
  const std::string own_nonce = new_nonce();
  send_step(connection, HandshakeStep::nonce, std::string(kHello) + own_nonce);
  FF_CO_TRY(const std::string answer, co_await receive_step(connection, HandshakeStep::answer));
  if (answer.size() < kNonceBytes) {
    co_return fail(Errc::corrupt, "{}: the peer sent no nonce", connection.peer());
  }
  const std::string nonces = own_nonce + answer.substr(0, kNonceBytes);
  if (!is_proven(proof_of(terms.key, "server", nonces), answer.substr(kNonceBytes))) {
    send_refusal(connection, fail(Errc::refused, "another node does not hold the key of this one"));
    co_return wrong_key(connection);
  }
  const std::string proof = proof_of(terms.key, "client", nonces);
  std::string message;
  append_le(message, static_cast<uint32_t>(proof.size()));
  message += proof;
  append_le(message, terms.ranks);
  append_le(message, static_cast<uint32_t>(terms.settings.size()));
  send_step(connection, HandshakeStep::node, message + terms.settings + encode_node(self));
  co_return Result<void>();
}

Task<Result<WorldNode>> accept_introduction(net::Connection& connection, const JobTerms& terms) {
  FF_CO_TRY(const std::string hello, co_await receive_step(connection, HandshakeStep::nonce));
  if (hello.size() != kHello.size() + kNonceBytes || !hello.starts_with(kHello)) {
    co_return fail(Errc::corrupt, "{}: the peer runs another version of ff, or another program",
                   connection.peer());
  }
  const std::string own_nonce = new_nonce();
  const std::string nonces = hello.substr(kHello.size()) + own_nonce;
  send_step(connection, HandshakeStep::answer, own_nonce + proof_of(terms.key, "server", nonces));
  FF_CO_TRY(const std::string message, co_await receive_step(connection, HandshakeStep::node));
  MessageReader reader(as_bytes(message));
  const auto text = [&reader] {
    const auto size = reader.read<uint32_t>();
    return as_text(reader.read_bytes(size));
  };
  const std::string_view proof = text();
  if (!is_proven(proof_of(terms.key, "client", nonces), proof)) co_return wrong_key(connection);
  const auto ranks = reader.read<uint32_t>();
  const std::string settings(text());
  FF_CO_TRY(WorldNode node, parse_node(reader.read_bytes(reader.remaining())));
  if (ranks != terms.ranks) {
    co_return fail(Errc::usage, "rank {} on {} is of a job of {} ranks, rank 0 of a job of {}",
                   node.first_rank, node.host, ranks, terms.ranks);
  }
  if (settings != terms.settings) {
    co_return fail(Errc::usage, "rank {} on {} has {}, rank 0 has {}", node.first_rank, node.host,
                   printable(settings), terms.settings);
  }
  if (node.first_rank >= ranks || node.ranks() > ranks - node.first_rank) {
    co_return fail(Errc::usage, "{} has ranks {} to {} of a job of {}", node.host, node.first_rank,
                   node.first_rank + node.ranks() - 1, ranks);
  }
  co_return node;
}

}  // namespace ff::collective
