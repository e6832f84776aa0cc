// server.cc: accepts connections, serves them, and shuts down in order.
#include "platform/rpc/server.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/audit.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::rpc {

namespace {

// Pause after accept() fails (no file descriptors left).
constexpr int64_t kAcceptPauseNs = 100 * kMillisecond;
// Poll interval of close() for the last reply.
constexpr int64_t kDrainPollNs = 5 * kMillisecond;
constexpr size_t kEndingHandshakesMax = 64;

Error too_slow() { return fail(Errc::busy, "its handshake was slow, and others wait"); }

// Interval of log lines about connections that were refused for one cause.
constexpr int64_t kRefusalLogNs = 10 * kSecond;
constexpr size_t kUserShare = 8;

}  // namespace

bool is_local(const net::Address& address) {
  return address.is_unix() || address.host.starts_with("127.") || address.host == "::1";
}

Server::Server(Loop& loop, net::Transport& transport, const Router& router, Metrics& metrics,
               Identity self, ServerLimits limits)
    : loop_(loop),
      transport_(transport),
      metrics_(metrics),
      methods_(router, metrics),
      self_(std::move(self)),
      limits_(limits),
      throttle_(loop, metrics, limits_.user_calls_running),
      accept_gate_(loop),
      connection_gate_(loop) {}

Server::~Server() = default;

Result<net::Address> Server::listen(const net::Address& address) {
  if (transport_.keyring() == nullptr && !is_local(address)) {
    Error error = fail(Errc::refused, "{}: other machines could connect, but there is no key",
                       address.text());
    error.hint =
        "Give a key with --key (openssl rand -hex 32 makes a root key), or listen on "
        "127.0.0.1.";
    return error;
  }
  FF_TRY(auto listener, transport_.listen(loop_, address));
  listeners_.push_back(std::move(listener));
  accept_gate_.spawn(accept(*listeners_.back()));
  return listeners_.back()->address();
}

Task<void> Server::accept(net::Listener& listener) {
  for (;;) {
    auto arrival = co_await listener.accept();
    if (accept_gate_.cancellation().requested()) co_return;
    if (!arrival) {
      log_warning("accept failed",
                  {{"address", listener.address().text()}, {"error", arrival.error().message}});
      if (!co_await sleep_for(loop_, kAcceptPauseNs)) co_return;
    } else {
      arrive(std::move(*arrival));
    }
  }
}

void Server::arrive(std::unique_ptr<net::IncomingConnection> arrival) {
  if (auto admitted = admit(arrival->source())) {
    connection_gate_.spawn(serve(std::move(arrival), *admitted));
  } else {
    log_refused(*arrival, admitted.error());
  }
}

void Server::take(std::unique_ptr<net::IncomingConnection> arrival) {
  const auto moved = std::make_shared<std::unique_ptr<net::IncomingConnection>>(std::move(arrival));
  loop_.post([this, moved] {
    if (!closing_) arrive(std::move(*moved));
  });
}

Task<Result<Server*>> Server::owner_of(net::IncomingConnection& arrival) {
  if (shards_.empty()) co_return this;
  FF_CO_TRY(const auto shard, co_await arrival.read_shard(loop_));
  co_return shard&&* shard < shards_.size() ? shards_[*shard] : shards_.front();
}

// In turn.
ShardChoice Server::choose_shard() {
  const auto count = static_cast<uint32_t>(shards_.size());
  return {.count = count, .shard = next_shard_++ % count};
}

// Peers that have proven nothing cannot take all connections from those that can. Counts the
// connection at once: many arrive before the first task of one runs.
Result<Server::HandshakeEntry> Server::admit(const std::string& source) {
  if (connections_ >= limits_.connections_max) {
    return fail(Errc::busy, "{} connections are open", connections_);
  }
  const auto same = handshakes_by_source_.find(source);
  if (!source.empty() && same != handshakes_by_source_.end() &&
      same->second >= limits_.handshakes_per_source_max) {
    FF_TRY(end_handshake(std::find_if(handshakes_.begin(), handshakes_.end(),
                                      [&](const auto& one) { return one.source == source; })));
  } else if (handshakes_.size() >= limits_.handshakes_max) {
    FF_TRY(end_handshake(handshakes_.begin()));
  }
  connections_++;
  handshakes_by_source_[source]++;
  return handshakes_.insert(handshakes_.end(), {source});
}

// The oldest one, of a source or of all: an honest client needs a few round trips alone, and is not
// the oldest of so many.
Result<void> Server::end_handshake(HandshakeEntry oldest) {
  if (oldest == handshakes_.end() || ending_handshakes_.size() >= kEndingHandshakesMax) {
    return fail(Errc::busy, "{} handshakes are not done", handshakes_.size());
  }
  ending_handshakes_.splice(ending_handshakes_.end(), handshakes_, oldest);
  oldest->ends = true;
  if (oldest->cancellation != nullptr) oldest->cancellation->request(too_slow());
  return {};
}

void Server::handshake_done(HandshakeEntry handshake) {
  const auto same = handshakes_by_source_.find(handshake->source);
  if (--same->second == 0) handshakes_by_source_.erase(same);
  (handshake->ends ? ending_handshakes_ : handshakes_).erase(handshake);
}

Result<void> Server::check_entity_limit(const Peer& peer) {
  if (!peer.entity) return {};
  const bool user = peer.entity->role == auth::Role::user;
  const size_t limit = limits_.connections_per_entity_max / (user ? kUserShare : 1);
  const auto found = by_entity_.find(peer.entity->full_name());
  if (found == by_entity_.end() || found->second < limit) return {};
  return fail(Errc::busy, "{} has {} connections already", peer.entity->full_name(), found->second);
}

void Server::log_refused(const net::IncomingConnection& arrival, const Error& error) {
  metrics_
      .counter("ff_rpc_refused_total", "Connections refused, by cause",
               {{"code", std::string(errc_name(error.code))}})
      .add();
  audit("refused", arrival.source().empty() ? arrival.peer() : arrival.source(),
        {{"peer", arrival.peer()}, {"error", error.message}});
  RefusalLog& log = refusal_logs_[error.code];
  if (loop_.now_ns() < log.next_ns) {
    log.silent++;
    return;
  }
  log_warning("connection refused", {{"peer", arrival.peer()},
                                     {"error", error.message},
                                     {"more_since_the_last_line", log.silent}});
  log = {.next_ns = loop_.now_ns() + kRefusalLogNs, .silent = 0};
}

Task<void> Server::serve(std::unique_ptr<net::IncomingConnection> arrival,
                         HandshakeEntry handshake) {
  Gauge& open = metrics_.gauge("ff_rpc_connections", "Open connections");
  open.add(1);
  CancelScope scope(loop_, co_await current_cancellation(), INT64_MAX, {});
  handshake->cancellation = &scope.cancellation();
  if (handshake->ends) scope.cancellation().request(too_slow());
  Result<std::unique_ptr<ServerConnection>> served(nullptr);
  const auto owner = co_await owner_of(*arrival).with_cancellation(scope.cancellation());
  if (!owner) {
    served = owner.error();
  } else if (*owner == this) {
    served = co_await open_connection(*arrival).with_cancellation(scope.cancellation());
  }
  handshake_done(handshake);
  if (owner && *owner != this) {
    (*owner)->take(std::move(arrival));
  } else if (served) {
    co_await run_connection(**served);
  } else {
    log_refused(*arrival, served.error());
  }
  open.add(-1);
  connections_--;
}

Task<Result<std::unique_ptr<ServerConnection>>> Server::open_connection(
    net::IncomingConnection& arrival) {
  FF_CO_TRY(auto connection, co_await arrival.open(loop_));
  ServerTerms terms{.calls_max = limits_.connection.calls_max, .keyring = transport_.keyring()};
  if (!shards_.empty() && shards_.front() == this) {
    terms.choose_shard = [this] { return choose_shard(); };
  }
  auto peer = co_await server_handshake(*connection, self_, std::move(terms));
  if (!peer) {
    count_protocol_fault(*connection, metrics_);
    co_return std::move(peer).error();
  }
  FF_CO_TRY(check_entity_limit(*peer));
  if (!peer->client.id.empty()) {
    FF_CO_TRY(co_await close_older_connections(*peer));
  }
  auto served =
      std::make_unique<ServerConnection>(std::move(connection), std::move(*peer), methods_,
                                         limits_.connection, transport_.keyring(), &throttle_);
  if (const std::string& id = served->peer().client.id; !id.empty()) {
    by_client_[id] = served.get();
  }
  co_return served;
}

// Returns once no call of the client's older connections is in flight: a delayed call of an old
// connection must not execute after a call of the new one.
Task<Result<void>> Server::close_older_connections(Peer peer) {
  for (;;) {
    const auto found = by_client_.find(peer.client.id);
    if (found == by_client_.end()) co_return Result<void>();
    ServerConnection& older = *found->second;
    if (older.peer().client.connection >= peer.client.connection) {
      co_return fail(Errc::refused, "{}: the client has a newer connection", peer.text());
    }
    older.stop(fail(Errc::unreachable, "{}: the client has a newer connection", peer.text()));
    FF_CO_TRY(co_await sleep_for(loop_, kDrainPollNs));
  }
}

Task<void> Server::run_connection(ServerConnection& connection) {
  const auto& entity = connection.peer().entity;
  const std::string name = entity ? entity->full_name() : std::string();
  if (entity) {
    audit("login", name,
          {{"address", connection.peer().address},
           {"serial", entity->serial},
           {"generation", entity->generation},
           {"program", connection.peer().name}});
  }
  open_connections_.insert(&connection);
  by_entity_[name]++;
  if (closing_) connection.drain();
  co_await connection.run();
  open_connections_.erase(&connection);
  if (--by_entity_[name] == 0) by_entity_.erase(name);
  const auto newest = by_client_.find(connection.peer().client.id);
  if (newest != by_client_.end() && newest->second == &connection) by_client_.erase(newest);
  const net::FrameFault fault = connection.connection().fault();
  if (fault == net::FrameFault::none) co_return;
  log_warning("connection closed", {{"peer", connection.peer().text()},
                                    {"cause", net::fault_name(fault)},
                                    {"error", connection.connection().close_reason()->message}});
}

bool Server::busy() const {
  return std::any_of(
      open_connections_.begin(), open_connections_.end(), [](ServerConnection* connection) {
        return connection->calls() > 0 || connection->connection().queued_bytes() > 0;
      });
}

Task<void> Server::close(int64_t drain_ns) {
  closing_ = true;
  co_await accept_gate_.close(fail(Errc::interrupted, "the server goes down"));
  listeners_.clear();
  for (ServerConnection* connection : open_connections_) connection->drain();
  const int64_t until_ns = loop_.now_ns() + drain_ns;
  while (busy() && loop_.now_ns() < until_ns) {
    if (!co_await sleep_for(loop_, kDrainPollNs)) break;
  }
  for (ServerConnection* connection : open_connections_) {
    connection->stop(fail(Errc::unreachable, "the server {} went down", self_.name));
  }
  co_await connection_gate_.close(fail(Errc::interrupted, "the server goes down"));
}

}  // namespace ff::rpc
