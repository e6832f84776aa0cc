// handshake.cc: the steps of the handshake, and its error messages.
#include "platform/rpc/handshake.h"

#include <fmt/format.h>

#include <array>

#include "platform/base/gate.h"
#include "platform/base/text.h"
#include "platform/rpc/error_wire.h"

namespace ff::rpc {

namespace {

constexpr size_t kNameMax = 256;
constexpr size_t kClientIdBytes = 16;

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

std::string clean(const std::string& text) { return printable(text.substr(0, kNameMax)); }

Peer peer_of(const net::Connection& connection) {
  return {.name = {},
          .software = {},
          .address = connection.peer(),
          .has_key = connection.proof().has_key,
          .entity = connection.proof().client};
}

Task<Result<Peer>> run_client(net::Connection& connection, Identity self, ClientInstance instance) {
  Peer peer = peer_of(connection);
  wire::Handshake first;
  wire::ClientHello& hello = *first.mutable_client_hello();
  hello.set_wire_version(self.version);
  hello.set_software(self.software);
  hello.set_name(self.name);
  hello.set_caller(instance.id);
  hello.set_connection(instance.connection);
  hello.set_any_shard(instance.any_shard);
  send(connection, self, first);

  FF_CO_TRY(const auto second, co_await next_step(connection, peer, wire::Handshake::kServerHello));
  const wire::ServerHello& server = second.server_hello();
  peer.name = clean(server.name());
  peer.software = clean(server.software());
  FF_CO_TRY(check_version(server.wire_version(), peer, self));
  peer.calls_max = server.calls_max();
  if (server.shard() < server.shards()) peer.choice = {server.shards(), server.shard()};
  if (peer.calls_max == 0) {
    co_return fail(Errc::corrupt, "{}: it allows no calls at all", peer.text());
  }
  co_return peer;
}

Task<Result<Peer>> run_server(net::Connection& connection, Identity self, ServerTerms terms) {
  Peer peer = peer_of(connection);
  FF_CO_TRY(const auto first, co_await next_step(connection, peer, wire::Handshake::kClientHello));
  const wire::ClientHello& hello = first.client_hello();
  peer.name = clean(hello.name());
  peer.software = clean(hello.software());
  peer.client = {.id = hello.caller().substr(0, kClientIdBytes),
                 .connection = hello.connection(),
                 .any_shard = hello.any_shard()};
  if (auto checked = check_version(hello.wire_version(), peer, self); !checked) {
    co_return refuse(connection, self, std::move(checked).error());
  }
  if (terms.keyring != nullptr && peer.entity) {
    const int64_t now_s = connection.loop().clock().wall_ns() / kSecond;
    auto valid = auth::check_valid(*terms.keyring->revocations(), *peer.entity, now_s);
    if (!valid) co_return refuse(connection, self, std::move(valid).error());
  }
  // An entity cannot close the connections of another one.
  if (peer.entity && !peer.client.id.empty()) {
    peer.client.id += fmt::format("|{} {}", peer.entity->full_name(), peer.entity->serial);
  }
  wire::Handshake second;
  wire::ServerHello& server = *second.mutable_server_hello();
  server.set_wire_version(self.version);
  server.set_software(self.software);
  server.set_name(self.name);
  server.set_calls_max(terms.calls_max);
  if (peer.client.any_shard && terms.choose_shard) {
    const ShardChoice choice = terms.choose_shard();
    server.set_shards(choice.count);
    server.set_shard(choice.shard);
  }
  send(connection, self, second);
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

std::optional<auth::TokenId> Peer::user() const {
  if (!entity || entity->role != auth::Role::user) return std::nullopt;
  return auth::TokenId{.uid = entity->uids.front().first, .serial = entity->serial};
}

std::string Peer::text() const {
  return name.empty() ? address : fmt::format("{} at {}", name, address);
}

Task<Result<Peer>> client_handshake(net::Connection& connection, Identity self,
                                    ClientInstance instance) {
  auto task = run_client(connection, std::move(self), std::move(instance));
  co_return co_await in_time(connection, std::move(task));
}

Task<Result<Peer>> server_handshake(net::Connection& connection, Identity self, ServerTerms terms) {
  auto task = run_server(connection, std::move(self), std::move(terms));
  co_return co_await in_time(connection, std::move(task));
}

}  // namespace ff::rpc
