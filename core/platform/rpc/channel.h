// A channel: the client's end of one connection, over which it calls. Many calls are in flight at
// once; replies come in any order. Owned by one loop.
//
// A call ends with its reply, its deadline, its caller's cancellation, or the connection. Errors of
// the server keep their code and name it; Errc::unreachable leaves open whether the call was done.
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
#include "platform/rpc/link.h"
#include "platform/rpc/senders.h"

namespace ff::rpc {

// How long a cancelled call waits for the server to say that it leaves the caller's memory alone,
// where the server reaches that memory itself; then the connection is closed, which ends it unless
// the server is halted.
constexpr int64_t kConfirmNs = 2 * kSecond;

struct CallSpec {
  uint32_t method = 0;
  std::string_view name = {};       // of the method, a literal
  int64_t deadline_ns = INT64_MAX;  // steady
  uint64_t sink_bytes = 0;          // the bulk that the call may be sent
  bool has_memory = false;          // slices of the caller's memory are in the message
};

// Counts the calls of all channels of a loop, by method.
class ClientCalls {
 public:
  explicit ClientCalls(Metrics& metrics) : metrics_(metrics) {}

  void ended(const CallSpec& spec, const Result<std::string>& result);
  Metrics& metrics() const { return metrics_; }

 private:
  Metrics& metrics_;
  std::map<uint32_t, CallCounters> methods_;
};

class Channel final : public Link {
 public:
  Channel(std::unique_ptr<net::Connection> connection, Peer peer, Senders& senders,
          ClientCalls& calls);
  // Only once closed, or with no call under way.
  ~Channel() override;

  // Takes new calls: neither failed nor said goodbye.
  bool usable() const { return usable_ && !connection().failed(); }
  size_t calls() const { return pending_.size(); }
  // When the server was told that a call is given up and did not confirm in kConfirmNs (steady):
  // it may still use memory of that call's, and of those that ended with the connection then.
  std::optional<int64_t> unconfirmed_ns() const { return unconfirmed_ns_; }
  // The reply's message.
  Task<Result<std::string>> call(CallSpec spec, std::string message);
  // Calls under way fail with Errc::unreachable.
  Task<void> close();

 private:
  class Pending;
  Result<void> take(net::Frame frame) override;
  Result<void> take_reply(net::Frame frame);
  Result<void> take_ask(const net::Head& head);
  void said_bye() override { usable_ = false; }
  void lost(const Error& error) override;
  Error named(const CallSpec& spec, Error error) const;
  Error late(const CallSpec& spec) const;
  Result<std::string> counted(const CallSpec& spec, Result<std::string> result);
  Task<void> give_up(Pending& pending, bool has_memory);

  Senders& senders_;
  ClientCalls& ended_calls_;
  bool usable_ = true;
  std::optional<int64_t> unconfirmed_ns_;
  std::map<uint64_t, Pending*> pending_;
  uint64_t next_call_ = 1;
  Semaphore slots_;
};

}  // namespace ff::rpc
