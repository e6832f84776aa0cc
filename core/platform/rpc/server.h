// A server: listens, shakes hands, and runs a session for each connection. Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/net/transport.h"
#include "platform/rpc/handshake.h"
#include "platform/rpc/session.h"

namespace ff::rpc {

struct ServerLimits {
  SessionLimits session;
  size_t connections_max = 10'000;  // handshakes included; more are closed at once
};

class Server {
 public:
  // All outlive it.
  Server(Loop& loop, net::Transport& transport, const Router& router, Metrics& metrics,
         Identity self, ServerLimits limits = {});
  // After close().
  ~Server();

  // Errc::refused: another machine could call, and there is no key. Errc::usage: an identity with a
  // token. Returns the address with the port that was chosen.
  Result<net::Address> listen(const net::Address& address);
  // Takes no new connections and calls, waits up to `drain_ns` for those under way, ends the rest.
  Task<void> close(int64_t drain_ns);

  size_t connections() const { return connections_; }

 private:
  Task<void> accept(net::Listener& listener);
  Task<void> serve(std::unique_ptr<net::Arrival> arrival);
  void refused(const net::Arrival& arrival, const Error& error);
  Task<Result<void>> end_older(Peer peer);
  Task<Result<std::unique_ptr<Session>>> open_session(net::Arrival& arrival);
  Task<void> run_session(Session& session);
  // Calls or replies under way.
  bool busy() const;

  Loop& loop_;
  net::Transport& transport_;
  Metrics& metrics_;
  ServedMethods methods_;
  const Identity self_;
  const ServerLimits limits_;
  size_t connections_ = 0;
  bool closing_ = false;
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  std::set<Session*> sessions_;
  std::map<std::string, Session*> by_caller_;  // the newest session of each client
  Gate accept_gate_;
  Gate session_gate_;
};

// Whether only this machine can reach the address.
bool is_local(const net::Address& address);

}  // namespace ff::rpc
