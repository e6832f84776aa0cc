// server.cc: from an arrival to a session, and going down in order.
#include "platform/rpc/server.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::rpc {

namespace {

// After accept() fails (no descriptors left) before it is tried again.
constexpr int64_t kAcceptPauseNs = 100 * kMillisecond;
// How often close() looks whether the last reply has left.
constexpr int64_t kDrainLookNs = 5 * kMillisecond;

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
      accept_gate_(loop),
      session_gate_(loop) {}

Server::~Server() = default;

Result<net::Address> Server::listen(const net::Address& address) {
  if (self_.user) {
    Error error = fail(Errc::usage, "{}: a token is a client's, servers need the cluster key",
                       address.text());
    error.hint = "Give the cluster's key file with --key, in place of the token.";
    return error;
  }
  if (!self_.key && !is_local(address)) {
    Error error = fail(Errc::refused, "{}: other machines could call here, and there is no key",
                       address.text());
    error.hint =
        "Give a cluster key with --key (openssl rand -hex 32 makes one), or listen on "
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
    if (accept_gate_.cancel().requested()) co_return;
    if (!arrival) {
      log_warning("accept failed",
                  {{"address", listener.address().text()}, {"error", arrival.error().message}});
      if (!co_await after(loop_, kAcceptPauseNs)) co_return;
    } else if (connections_ >= limits_.connections_max) {
      refused(**arrival, fail(Errc::busy, "{} connections are open", connections_));
    } else {
      session_gate_.spawn(serve(std::move(*arrival)));
    }
  }
}

void Server::refused(const net::Arrival& arrival, const Error& error) {
  metrics_
      .counter("ff_rpc_refused_total", "Connections refused, by cause",
               {{"code", std::string(errc_name(error.code))}})
      .add();
  log_warning("connection refused", {{"peer", arrival.peer()}, {"error", error.message}});
}

Task<void> Server::serve(std::unique_ptr<net::Arrival> arrival) {
  Gauge& open = metrics_.gauge("ff_rpc_connections", "Open connections");
  connections_++;
  open.add(1);
  auto opening = open_session(*arrival);
  auto session = co_await std::move(opening);
  if (session) {
    auto run = run_session(**session);
    co_await std::move(run);
  } else {
    refused(*arrival, session.error());
  }
  open.add(-1);
  connections_--;
}

Task<Result<std::unique_ptr<Session>>> Server::open_session(net::Arrival& arrival) {
  FF_CO_TRY(auto connection, co_await arrival.open(loop_));
  auto handshake = server_handshake(*connection, self_, limits_.session.calls_max);
  auto peer = co_await std::move(handshake);
  if (!peer) {
    count_broken(*connection, metrics_);
    co_return std::move(peer).error();
  }
  if (!peer->caller.id.empty()) {
    auto ending = end_older(*peer);
    FF_CO_TRY(co_await std::move(ending));
  }
  auto session =
      std::make_unique<Session>(std::move(connection), std::move(*peer), methods_, limits_.session);
  if (const std::string& id = session->peer().caller.id; !id.empty()) {
    by_caller_[id] = session.get();
  }
  co_return session;
}

// Returns once no call of the client's older connections is under way: what came over them and was
// held up must not be done after what comes over the newer one.
Task<Result<void>> Server::end_older(Peer peer) {
  for (;;) {
    const auto found = by_caller_.find(peer.caller.id);
    if (found == by_caller_.end()) co_return Result<void>();
    Session& older = *found->second;
    if (older.peer().caller.connection >= peer.caller.connection) {
      co_return fail(Errc::refused, "{}: the client has a newer connection", peer.text());
    }
    older.stop(fail(Errc::unreachable, "{}: the client has a newer connection", peer.text()));
    FF_CO_TRY(co_await after(loop_, kDrainLookNs));
  }
}

Task<void> Server::run_session(Session& session) {
  sessions_.insert(&session);
  if (closing_) session.drain();
  co_await session.run();
  sessions_.erase(&session);
  const auto newest = by_caller_.find(session.peer().caller.id);
  if (newest != by_caller_.end() && newest->second == &session) by_caller_.erase(newest);
  const net::FrameFault fault = session.connection().fault();
  if (fault == net::FrameFault::none) co_return;
  log_warning("connection closed", {{"peer", session.peer().text()},
                                    {"cause", net::fault_name(fault)},
                                    {"error", session.connection().close_reason()->message}});
}

bool Server::busy() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](Session* session) {
    return session->calls() > 0 || session->connection().queued_bytes() > 0;
  });
}

Task<void> Server::close(int64_t drain_ns) {
  closing_ = true;
  co_await accept_gate_.close(fail(Errc::interrupted, "the server goes down"));
  listeners_.clear();
  for (Session* session : sessions_) session->drain();
  const int64_t until_ns = loop_.now_ns() + drain_ns;
  while (busy() && loop_.now_ns() < until_ns) {
    if (!co_await after(loop_, kDrainLookNs)) break;
  }
  for (Session* session : sessions_) {
    session->stop(fail(Errc::unreachable, "the server {} went down", self_.name));
  }
  co_await session_gate_.close(fail(Errc::interrupted, "the server goes down"));
}

}  // namespace ff::rpc
