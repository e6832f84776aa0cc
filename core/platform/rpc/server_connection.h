// The server's end of one connection. Each call runs as a task with a deadline; a cancel from the
// client, or the loss of the connection, cancels it. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "platform/auth/keyring.h"
#include "platform/base/metrics.h"
#include "platform/base/run_on.h"
#include "platform/rpc/call_counters.h"
#include "platform/rpc/call_throttle.h"
#include "platform/rpc/rpc_connection.h"

namespace ff::rpc {

class ServerConnection;

// The context of a call, passed to its handler.
class ServerCall {
 public:
  ServerCall(ServerConnection& connection, const net::FrameHeader& head, int64_t longest_ns);

  Loop& loop() const;
  const Peer& peer() const;
  // Steady clock. Handlers pass it on to the calls that they make.
  int64_t deadline_ns() const { return deadline_ns_; }

  // Writes `from` at `offset` of the caller's sink. Waits for a grant (grant_scheduler.h) if the
  // data is large. Fails after the deadline.
  Task<Result<void>> push(net::RemoteBuffer sink, uint64_t offset, ByteView from);
  // Reads the caller's source into memory of the server, since the client may change its memory at
  // any time. Errc::deadline: the client does not send it.
  Task<Result<void>> pull(net::RemoteBuffer source, uint64_t offset, ByteSpan into);
  // See net::Connection::mapped_memory(). Nothing while another loop has the call.
  std::optional<net::Connection::MappedMemory> mapped_memory(const net::RemoteBuffer& buffer);

  // Runs `handling`, the rest of the call, in the loop of `there`; its transfers come back to this
  // one. Once per call.
  template <class Reply>
  Task<Result<Reply>> hand_over(Gate& there, Task<Result<Reply>> handling) {
    away_ = &there.loop();
    co_return co_await run_on(loop(), there, std::move(handling));
  }

 private:
  friend class ServerConnection;
  Gate& gate();
  Task<Result<void>> push_here(net::RemoteBuffer sink, uint64_t offset, ByteView from);
  Task<Result<void>> pull_here(net::RemoteBuffer source, uint64_t offset, ByteSpan into);

  ServerConnection& connection_;
  const uint64_t number_;
  const int64_t began_ns_;
  const int64_t deadline_ns_;
  bool granted_;
  bool grant_requested_ = false;
  Loop* away_ = nullptr;  // the loop that the call was handed over to
  Event grant_;
  CancelScope scope_;
};

// Implements a method: returns the message of the reply, or an error.
using Handler = std::function<Task<Result<std::string>>(ServerCall&, std::string)>;

struct Route {
  std::string name;
  Handler handler;
  auth::Roles roles = auth::kOperators;  // whose peers may call it
};

// The methods of a server by number.
class Router {
 public:
  // Each number may be added once. `roles`: who may call it; the handler checks for which users and
  // files such a peer may act.
  void add(uint32_t method, std::string_view name, Handler handler,
           auth::Roles roles = auth::kOperators);
  const Route* find(uint32_t method) const;

 private:
  std::map<uint32_t, Route> routes_;
};

// The methods of one server with their metrics, so that a call needs one lookup. Owned by one loop.
class ServerMethods {
 public:
  struct Entry {
    const Route* route;  // null: unknown method
    CallCounters calls;
    Histogram* seconds;  // null until the first call has ended
  };
  // Both must outlive it.
  ServerMethods(const Router& router, Metrics& metrics);

  // Unknown numbers share one entry, so that peers cannot create new metrics.
  Entry& find(uint32_t method);
  Metrics& metrics() const { return metrics_; }
  void record(Entry& entry, const Result<std::string>& result, int64_t ns);

 private:
  Entry make(const Route* route);

  const Router& router_;
  Metrics& metrics_;
  std::map<uint32_t, Entry> methods_;
  Entry unknown_;
};

struct ServerConnectionLimits {
  uint32_t calls_max = 1024;             // calls in flight; further ones fail with Errc::busy
  size_t message_bytes_max = 64 * kMiB;  // messages of calls in flight
  // No call runs longer, whatever deadline its client gave. Users and mounts; and all others.
  int64_t client_call_ns = 120 * kSecond;
  int64_t call_ns = 24 * 3600 * kSecond;
};

// A pull fails after this time and a second per MiB: the peer hangs.
constexpr int64_t kPullNs = 10 * kSecond;

class ServerConnection final : public RpcConnection {
 public:
  // `keyring`: of this server, null without keys; `throttle`: of the calls of all connections of
  // the server, null without limits. Both must outlive the connection.
  ServerConnection(std::unique_ptr<net::Connection> connection, Peer peer, ServerMethods& methods,
                   ServerConnectionLimits limits, const auth::Keyring* keyring = nullptr,
                   CallThrottle* throttle = nullptr);

  size_t calls() const { return calls_.size(); }
  // Runs until the connection has failed and every call has ended.
  Task<void> run();
  // Sends a goaway and refuses new calls.
  void drain();
  // Cancels all calls and closes the connection; run() then ends.
  void stop(Error reason);

 private:
  friend class ServerCall;
  Result<void> handle_frame(net::Frame frame) override;
  Result<void> handle_call(net::Frame frame);
  Result<void> check_access(const Route& route) const;
  Result<void> check_key();
  int64_t longest_call_ns() const;
  void on_goaway() override {}
  void on_disconnect(const Error& error) override;
  Task<void> serve(ServerCall& call, ServerMethods::Entry& method, std::string message);
  void reply(uint64_t number, Result<std::string> result);

  ServerMethods& methods_;
  const ServerConnectionLimits limits_;
  const auth::Keyring* const keyring_;
  CallThrottle* const throttle_;
  uint64_t checked_version_ = 0;  // of the revocations that check_key() has seen
  int64_t check_again_ns_ = 0;    // when the key of the peer may have expired
  bool draining_ = false;
  size_t message_bytes_ = 0;
  Event disconnected_;
  std::map<uint64_t, std::unique_ptr<ServerCall>> calls_;
  Gate call_gate_;  // its tasks use the members above
};

}  // namespace ff::rpc
