// A session: the server's end of one connection. Each call runs as a task of its own, under its
// deadline; the client's cancel, or the loss of the connection, cancels it. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "platform/base/metrics.h"
#include "platform/rpc/call_counters.h"
#include "platform/rpc/link.h"

namespace ff::rpc {

class Session;

// A call as its handler sees it.
class ServerCall {
 public:
  ServerCall(Session& session, const net::Head& head);

  Loop& loop() const;
  // Who calls.
  const Peer& peer() const;
  // Steady; INT64_MAX for none. Passed on to what the handler itself calls.
  int64_t deadline_ns() const { return deadline_ns_; }

  // Writes `from` at `offset` of the caller's sink, once the caller lets it (senders.h). Not after
  // the deadline.
  Task<Result<void>> push(net::Slice sink, uint64_t offset, ByteView from);
  // Reads the caller's source. Into memory of the server: a client's memory may change meanwhile.
  Task<Result<void>> pull(net::Slice source, uint64_t offset, ByteSpan into);
  // net::Connection::reach().
  std::optional<ByteSpan> reach(const net::Slice& slice);

 private:
  friend class Session;
  Session& session_;
  const uint64_t number_;
  const int64_t began_ns_;
  const int64_t deadline_ns_;
  bool granted_;
  bool asked_ = false;
  Event grant_;
  CancelScope scope_;
};

// What a method does: the reply's message, or an error.
using Handler = std::function<Task<Result<std::string>>(ServerCall&, std::string)>;

// Who may call a method.
enum class Access : uint8_t {
  trusted,  // who may act for any user (Peer::trusted)
  users,    // holders of tokens, too: the handler looks whether they may do what they ask for
};

struct Route {
  std::string name;
  Handler handler;
  Access access = Access::trusted;
};

// Methods by number.
class Router {
 public:
  // One handler a number.
  void add(uint32_t method, std::string_view name, Handler handler,
           Access access = Access::trusted);
  const Route* find(uint32_t method) const;

 private:
  std::map<uint32_t, Route> routes_;
};

// The methods of one server, each with its series: one lookup a call. Owned by its loop.
class ServedMethods {
 public:
  struct Served {
    const Route* route;  // null: there is no such method
    CallCounters calls;
    Histogram* seconds;  // null until the first call has ended
  };
  // Both outlive it.
  ServedMethods(const Router& router, Metrics& metrics);

  // All numbers without a method share one: their series must not grow with what peers send.
  Served& find(uint32_t method);
  Metrics& metrics() const { return metrics_; }
  void ended(Served& served, const Result<std::string>& result, int64_t ns);

 private:
  Served make(const Route* route);

  const Router& router_;
  Metrics& metrics_;
  std::map<uint32_t, Served> methods_;
  Served unknown_;
};

struct SessionLimits {
  uint32_t calls_max = 1024;             // in flight; more are answered with Errc::busy
  size_t message_bytes_max = 64 * kMiB;  // of calls in flight
};

class Session final : public Link {
 public:
  Session(std::unique_ptr<net::Connection> connection, Peer peer, ServedMethods& methods,
          SessionLimits limits);

  size_t calls() const { return calls_.size(); }
  // Runs until the connection is gone and every call has ended.
  Task<void> run();
  // Takes no new calls; tells the client.
  void drain();
  // Cancels what is under way and closes the connection; run() then ends.
  void stop(Error reason);

 private:
  friend class ServerCall;
  Result<void> take(net::Frame frame) override;
  Result<void> take_call(net::Frame frame);
  Result<void> may_call(const Route& route) const;
  void said_bye() override {}
  void lost(const Error& error) override;
  Task<void> serve(ServerCall& call, ServedMethods::Served& method, std::string message);
  void reply(uint64_t number, Result<std::string> result);

  ServedMethods& methods_;
  const SessionLimits limits_;
  bool draining_ = false;
  size_t message_bytes_ = 0;
  Event lost_;
  std::map<uint64_t, std::unique_ptr<ServerCall>> calls_;
  Gate call_gate_;  // its tasks use the above
};

}  // namespace ff::rpc
