// A server: listens, performs the handshake, and serves each connection (ServerConnection). Owned
// by one loop.
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
#include "platform/rpc/server_connection.h"

namespace ff::rpc {

struct ServerLimits {
  ServerConnectionLimits connection;
  size_t connections_max = 10'000;  // including handshakes; further ones are closed at once
};

class Server {
 public:
  // All arguments must outlive the server.
  Server(Loop& loop, net::Transport& transport, const Router& router, Metrics& metrics,
         Identity self, ServerLimits limits = {});
  // Only after close().
  ~Server();

  // Returns the address with the port that the kernel chose. Errc::refused: other machines could
  // connect, but there is no key.
  Result<net::Address> listen(const net::Address& address);
  // Stops accepting connections and calls, waits up to `drain_ns` for calls in flight, and cancels
  // the rest.
  Task<void> close(int64_t drain_ns);

  size_t connections() const { return connections_; }

 private:
  Task<void> accept(net::Listener& listener);
  Task<void> serve(std::unique_ptr<net::IncomingConnection> arrival);
  void log_refused(const net::IncomingConnection& arrival, const Error& error);
  Task<Result<void>> close_older_connections(Peer peer);
  Task<Result<std::unique_ptr<ServerConnection>>> open_connection(net::IncomingConnection& arrival);
  Task<void> run_connection(ServerConnection& connection);
  // Whether calls or replies are in flight.
  bool busy() const;

  Loop& loop_;
  net::Transport& transport_;
  Metrics& metrics_;
  ServerMethods methods_;
  const Identity self_;
  const ServerLimits limits_;
  size_t connections_ = 0;
  bool closing_ = false;
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  std::set<ServerConnection*> open_connections_;
  std::map<std::string, ServerConnection*> by_client_;  // newest connection of each client
  Gate accept_gate_;
  Gate connection_gate_;
};

// Whether only this machine can reach the address.
bool is_local(const net::Address& address);

}  // namespace ff::rpc
