// A server: listens, performs the handshake, and serves each connection (ServerConnection). Owned
// by one loop.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
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
  // Of one entity; users get an eighth of this.
  size_t connections_per_entity_max = 2'000;
  // Calls of one user that run at a time, on all connections; the others wait.
  size_t user_calls_running = 16;
  // Handshakes at a time, as MaxStartups of sshd(8), and those of one source
  // (net::IncomingConnection::source). A new one too many ends the oldest.
  size_t handshakes_max = 512;
  size_t handshakes_per_source_max = 64;
};

class Server {
 public:
  // All arguments must outlive the server.
  Server(Loop& loop, net::Transport& transport, const Router& router, Metrics& metrics,
         Identity self, ServerLimits limits = {});
  // Only after close().
  ~Server();

  // The servers of all shards of the daemon, in their order: this one passes each connection on to
  // the shard that the client asks for, before TLS, and chooses one for a client that any may
  // serve. All outlive the connections. Before listen().
  void set_shards(std::vector<Server*> shards) { shards_ = std::move(shards); }
  // Returns the address with the port that the kernel chose. Errc::refused: other machines could
  // connect, but there is no key.
  Result<net::Address> listen(const net::Address& address);
  // Stops accepting connections and calls, waits up to `drain_ns` for calls in flight, and cancels
  // the rest.
  Task<void> close(int64_t drain_ns);

  size_t connections() const { return connections_; }

 private:
  Task<void> accept(net::Listener& listener);
  // A handshake that is not done, and its way to end early.
  struct Handshake {
    std::string source;
    CancellationToken* cancellation = nullptr;  // null: its task has not begun
    bool ends = false;
  };
  using HandshakeEntry = std::list<Handshake>::iterator;
  Task<void> serve(std::unique_ptr<net::IncomingConnection> arrival, HandshakeEntry handshake);
  void arrive(std::unique_ptr<net::IncomingConnection> arrival);
  // From another shard: any thread.
  void take(std::unique_ptr<net::IncomingConnection> arrival);
  Task<Result<Server*>> owner_of(net::IncomingConnection& arrival);
  ShardChoice choose_shard();
  Result<HandshakeEntry> admit(const std::string& source);
  Result<void> end_handshake(HandshakeEntry oldest);
  void handshake_done(HandshakeEntry handshake);
  Result<void> check_entity_limit(const Peer& peer);
  // At most one line per cause in a while, with the number of those without a line.
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
  std::vector<Server*> shards_;  // empty: there is only this one
  uint32_t next_shard_ = 0;      // of the next client that any shard may serve
  size_t connections_ = 0;
  std::list<Handshake> handshakes_;                     // the oldest first
  std::list<Handshake> ending_handshakes_;              // until their tasks have run once more
  std::map<std::string, size_t> handshakes_by_source_;  // without zeros
  std::map<std::string, size_t> by_entity_;             // connections, without zeros
  struct RefusalLog {
    int64_t next_ns = 0;
    uint64_t silent = 0;
  };
  std::map<Errc, RefusalLog> refusal_logs_;
  CallThrottle throttle_;
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
