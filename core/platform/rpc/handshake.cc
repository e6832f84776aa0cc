// handshake.cc: the four steps of the handshake, and its error messages.
#include "platform/rpc/handshake.h"

#include <fmt/format.h>

#include <array>

#include "platform/base/gate.h"
#include "platform/base/text.h"
#include "platform/rpc/error_wire.h"

namespace ff::rpc {

namespace {

constexpr size_t kNonceBytes = 32;
constexpr std::string_view kKeyId = "cluster";
constexpr std::string_view kUserKeyId = "user";
constexpr size_t kNameMax = 256;
constexpr size_t kClientIdBytes = 16;

std::string nonce(Rng& rng) {
  std::array<std::byte, kNonceBytes> bytes;
  auth::fill_random(bytes, rng);
  return std::string(as_text(bytes));
}

void send(net::Connection& connection, const Identity& self, const wire::Handshake& step) {
  net::FrameHeader head{.kind = net::FrameKind::hello};
  head.version = static_cast<uint16_t>(self.version);
  connection.send(head, step.SerializeAsString());
}

Error refused(const Peer& peer, std::string_view why, std::string_view hint) {
  Error error = fail(Errc::refused, "{}: {}", peer.text(), why);
  error.hint = hint;
  return error;
}

// Sends the error to the peer and returns it.
Error refuse(net::Connection& connection, const Identity& self, Error error) {
  wire::Handshake step;
  to_wire(error, *step.mutable_refusal()->mutable_error());
  send(connection, self, step);
  return error;
}

std::string proof(const std::optional<auth::Key>& key, std::string_view side,
                  const wire::ClientHello& client, const wire::ServerHello& server) {
  if (!key) return {};
  std::array<std::byte, 2 * sizeof(uint32_t)> versions;
  store_le<uint32_t>(versions.data(), client.wire_version());
  store_le<uint32_t>(versions.data() + sizeof(uint32_t), server.wire_version());
  std::string said = fmt::format("ff {}|", side);
  said += as_text(versions);
  said += client.nonce() + server.nonce();  // of known lengths
  return std::string(as_text(auth::hmac_sha256(*key, as_bytes(said))));
}

bool proven(const std::string& expected, const std::string& got) {
  return auth::constant_time_equal(as_bytes(expected), as_bytes(got));
}

Task<Result<wire::Handshake>> next_step(net::Connection& connection, const Peer& peer,
                                        wire::Handshake::StepCase wanted) {
  FF_CO_TRY(const net::Frame frame, co_await connection.receive());
  wire::Handshake step;
  if (frame.head.kind != net::FrameKind::hello || !step.ParseFromString(frame.message)) {
    co_return fail(Errc::corrupt, "{}: the handshake was left out", peer.text());
  }
  if (step.has_refusal()) {
    Error error = from_wire(step.refusal().error());
    // The peer's message names this end by its address.
    co_return std::move(error).with_context(fmt::format("{} refuses: ", peer.text()));
  }
  if (step.step_case() != wanted) {
    co_return fail(Errc::corrupt, "{}: a step of the handshake out of order", peer.text());
  }
  co_return step;
}

Result<void> check_version(uint32_t theirs, const Peer& peer, const Identity& self) {
  if (theirs == self.version) return {};
  const bool here = theirs > self.version;
  return refused(
      peer,
      fmt::format("it uses protocol version {} ({}), {} here uses {}: {} side is older", theirs,
                  peer.software, self.software, self.version, here ? "this" : "the other"),
      "Install the same version of ff on both machines.");
}

Result<void> check_nonce(const std::string& bytes, const Peer& peer) {
  if (bytes.size() == kNonceBytes) return {};
  return fail(Errc::corrupt, "{}: a nonce of {} bytes", peer.text(), bytes.size());
}

// The server's refusal of a client that could not prove its key or token.
Error unproven(const Peer& peer, const Identity& self) {
  if (!peer.user) {
    return refused(peer, fmt::format("it does not hold the cluster key of {}", self.name),
                   "Copy cluster.key from the server.");
  }
  return refused(peer,
                 fmt::format("it does not hold token {} of user {} for the cluster of {}",
                             peer.user->serial, peer.user->uid, self.name),
                 "Have whoever runs the cluster make a new token.");
}

// The client's refusal of a server that could not prove its key.
Error unproven_server(const Peer& peer, const Identity& self) {
  if (!self.user) {
    return refused(peer, fmt::format("it does not hold the cluster key of {}", self.name),
                   "Copy cluster.key from the server, or correct the address.");
  }
  return refused(
      peer, fmt::format("it does not hold the cluster key that the token of {} is from", self.name),
      "Have whoever runs the cluster make a new token, or correct the address.");
}

std::string clean(const std::string& text) { return printable(text.substr(0, kNameMax)); }

Task<Result<Peer>> run_client(net::Connection& connection, Identity self, ClientInstance instance) {
  Peer peer{.name = {}, .software = {}, .address = connection.peer()};
  wire::Handshake first;
  wire::ClientHello& hello = *first.mutable_client_hello();
  hello.set_wire_version(self.version);
  hello.set_software(self.software);
  hello.set_name(self.name);
  hello.set_nonce(nonce(*self.nonces));
  if (self.key) hello.set_key_id(std::string(self.user ? kUserKeyId : kKeyId));
  if (self.user) {
    hello.set_has_user(true);
    hello.set_uid(self.user->uid);
    hello.set_serial(self.user->serial);
  }
  hello.set_caller(instance.id);
  hello.set_connection(instance.connection);
  send(connection, self, first);

  FF_CO_TRY(const auto second, co_await next_step(connection, peer, wire::Handshake::kServerHello));
  const wire::ServerHello& server = second.server_hello();
  peer.name = clean(server.name());
  peer.software = clean(server.software());
  FF_CO_TRY(check_version(server.wire_version(), peer, self));
  FF_CO_TRY(check_nonce(server.nonce(), peer));
  if (!proven(proof(self.key, "server", hello, server), server.proof())) {
    co_return refuse(connection, self, unproven_server(peer, self));
  }
  peer.has_key = self.key.has_value();
  peer.keyless = !self.key;

  wire::Handshake third;
  third.mutable_client_proof()->set_proof(proof(self.key, "client", hello, server));
  send(connection, self, third);
  FF_CO_TRY(const auto fourth, co_await next_step(connection, peer, wire::Handshake::kWelcome));
  peer.calls_max = fourth.welcome().calls_max();
  if (peer.calls_max == 0) {
    co_return fail(Errc::corrupt, "{}: it allows no calls at all", peer.text());
  }
  co_return peer;
}

Result<void> check_hello(const wire::ClientHello& hello, const Peer& peer, const Identity& self) {
  FF_TRY(check_version(hello.wire_version(), peer, self));
  FF_TRY(check_nonce(hello.nonce(), peer));
  if (!self.key && hello.has_user()) {
    return refused(peer, fmt::format("it holds a token, and {} has no key", self.name),
                   "Start the server with the cluster's key file, or connect without the token.");
  }
  if (self.key && hello.key_id() != (hello.has_user() ? kUserKeyId : kKeyId)) {
    return refused(peer, fmt::format("it comes without the cluster key of {}", self.name),
                   "Give the cluster's key file with --key, or a token with --token.");
  }
  if (!self.key && !hello.key_id().empty()) {
    return refused(peer, fmt::format("it holds a key, and {} has none", self.name),
                   "Start the server with the cluster's key file.");
  }
  return {};
}

Task<Result<Peer>> run_server(net::Connection& connection, Identity self, uint32_t calls_max) {
  Peer peer{.name = {}, .software = {}, .address = connection.peer()};
  FF_CO_TRY(const auto first, co_await next_step(connection, peer, wire::Handshake::kClientHello));
  const wire::ClientHello& hello = first.client_hello();
  peer.name = clean(hello.name());
  peer.software = clean(hello.software());
  peer.client = {.id = hello.caller().substr(0, kClientIdBytes), .connection = hello.connection()};
  if (auto checked = check_hello(hello, peer, self); !checked) {
    co_return refuse(connection, self, std::move(checked).error());
  }
  std::optional<auth::Key> key = self.key;
  if (hello.has_user()) {
    peer.user = {.uid = hello.uid(), .serial = hello.serial()};
    key = auth::user_key(*self.key, *peer.user);
    // A user cannot close the connections of another user.
    if (!peer.client.id.empty()) {
      peer.client.id += fmt::format("|{}|{}", peer.user->uid, peer.user->serial);
    }
  }

  wire::Handshake second;
  wire::ServerHello& server = *second.mutable_server_hello();
  server.set_wire_version(self.version);
  server.set_software(self.software);
  server.set_name(self.name);
  server.set_nonce(nonce(*self.nonces));
  server.set_proof(proof(key, "server", hello, server));
  send(connection, self, second);

  FF_CO_TRY(const auto third, co_await next_step(connection, peer, wire::Handshake::kClientProof));
  if (!proven(proof(key, "client", hello, server), third.client_proof().proof())) {
    co_return refuse(connection, self, unproven(peer, self));
  }
  peer.has_key = self.key && !peer.user;
  peer.keyless = !self.key;

  wire::Handshake fourth;
  fourth.mutable_welcome()->set_calls_max(calls_max);
  send(connection, self, fourth);
  co_return peer;
}

template <class T>
Task<Result<T>> in_time(net::Connection& connection, Task<Result<T>> task) {
  Loop& loop = connection.loop();
  std::string what = fmt::format("{}: the handshake did not end within {} s", connection.peer(),
                                 kHandshakeNs / kSecond);
  auto done =
      co_await with_deadline(loop, loop.now_ns() + kHandshakeNs, std::move(what), std::move(task));
  if (!done) {
    // Gives a refusal some time to reach the peer.
    auto flushed = connection.wait_flushed();
    const int64_t patience = loop.now_ns() + kHandshakeNs / 10;
    (void)co_await with_deadline(loop, patience, "the peer does not read", std::move(flushed));
    const bool broken = done.error().code == Errc::corrupt;
    connection.close(done.error(), broken ? net::FrameFault::handshake : net::FrameFault::none);
  }
  co_return done;
}

}  // namespace

std::string new_client_id(Rng& rng) {
  std::array<std::byte, kClientIdBytes> bytes;
  auth::fill_random(bytes, rng);
  return std::string(as_text(bytes));
}

std::string Peer::text() const {
  return name.empty() ? address : fmt::format("{} at {}", name, address);
}

Task<Result<Peer>> client_handshake(net::Connection& connection, Identity self,
                                    ClientInstance instance) {
  auto task = run_client(connection, std::move(self), std::move(instance));
  co_return co_await in_time(connection, std::move(task));
}

Task<Result<Peer>> server_handshake(net::Connection& connection, Identity self,
                                    uint32_t calls_max) {
  auto task = run_server(connection, std::move(self), calls_max);
  co_return co_await in_time(connection, std::move(task));
}

}  // namespace ff::rpc
