// A channel: the client's end of one connection. Many calls may be in flight; replies arrive in any
// order. Owned by one loop.
//
// A call ends with its reply, its deadline, the caller's cancellation, or the connection. Errors
// from the server keep their code, and the message names the server. After Errc::unreachable the
// server may or may not have executed the call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/clock.h"
#include "platform/base/metrics.h"
#include "platform/rpc/call_counters.h"
#include "platform/rpc/grant_scheduler.h"
#include "platform/rpc/rpc_connection.h"

namespace ff::rpc {

// With one-sided transports a cancelled call waits until the server confirms that it has ended all
// access to the caller's memory, as long as the server answers pings within this time. Otherwise
// the channel closes the connection, which ends all access unless the server process is stopped.
constexpr int64_t kCancelConfirmNs = 2 * kSecond;

struct CallSpec {
  uint32_t method = 0;
  std::string_view name = {};       // name of the method; a literal
  int64_t deadline_ns = INT64_MAX;  // steady clock
  uint64_t sink_bytes = 0;          // bulk data that the server may send
  bool has_memory = false;          // the message contains buffers of the caller's memory
};

// Metrics of the calls of all channels of a loop, by method.
class ClientCallMetrics {
 public:
  explicit ClientCallMetrics(Metrics& metrics) : metrics_(metrics) {}

  void record(const CallSpec& spec, const Result<std::string>& result);
  Metrics& metrics() const { return metrics_; }

 private:
  Metrics& metrics_;
  std::map<uint32_t, CallCounters> methods_;
};

class Channel final : public RpcConnection {
 public:
  Channel(std::unique_ptr<net::Connection> connection, Peer peer, GrantScheduler& grants,
          ClientCallMetrics& calls);
  // Only after close(), or with no call in flight.
  ~Channel() override;

  // Accepts new calls: the connection has not failed and the server has not sent a goaway.
  bool usable() const { return usable_ && !connection().failed(); }
  size_t calls() const { return pending_.size(); }
  // The steady time of a ping that was not answered within kCancelConfirmNs after the server had
  // not confirmed a cancelled call, or that of the end of a connection in shared memory that this
  // side closed. The server may still access memory of that call, and of the calls that ended when
  // the connection was closed.
  std::optional<int64_t> unconfirmed_ns() const { return unconfirmed_ns_; }
  // Returns the message of the reply.
  Task<Result<std::string>> call(CallSpec spec, std::string message);
  // Calls in flight fail with Errc::unreachable.
  Task<void> close();

 private:
  class Pending;
  Result<void> handle_frame(net::Frame frame) override;
  Result<void> handle_reply(net::Frame frame);
  Result<void> handle_request_to_send(const net::FrameHeader& head);
  void on_goaway() override { usable_ = false; }
  void on_disconnect(const Error& error) override;
  Error with_call_name(const CallSpec& spec, Error error) const;
  Error deadline_error(const CallSpec& spec) const;
  Result<std::string> count_result(const CallSpec& spec, Result<std::string> result);
  Task<void> cancel_call(Pending& pending, bool has_memory);

  GrantScheduler& grants_;
  ClientCallMetrics& call_metrics_;
  bool usable_ = true;
  std::optional<int64_t> unconfirmed_ns_;
  std::map<uint64_t, Pending*> pending_;
  uint64_t next_call_ = 1;
  Semaphore slots_;
};

}  // namespace ff::rpc
