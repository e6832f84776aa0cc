// A client of one server: keeps a channel to it, connects when there is none, and after failures
// waits longer and longer before it tries again. Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/base/backoff.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/net/transport.h"
#include "platform/rpc/channel.h"
#include "platform/rpc/handshake.h"
#include "platform/rpc/senders.h"

namespace ff::rpc {

// Between attempts to connect (base/backoff.h).
constexpr int64_t kBackoffFirstNs = 50 * kMillisecond;
constexpr int64_t kBackoffLastNs = 5 * kSecond;
// A channel that has been silent for so long may have been lost without this loop knowing yet.
constexpr int64_t kQuietNs = kMillisecond;

// What clients of one loop share; outlives them, like what it names.
struct ClientContext {
  Loop& loop;
  net::Transport& transport;
  Senders& senders;
  Metrics& metrics;
  Rng& rng;
  Identity self;
  ClientCalls calls{metrics};
};

// A caller that no other client is.
std::shared_ptr<Caller> new_caller(Rng& rng);

class Client {
 public:
  // `caller`: shared with other clients of the same server, of which only the newest connection is
  // to be served; null: its own.
  Client(ClientContext& context, net::Address address, std::shared_ptr<Caller> caller = nullptr);
  // After close(), or with no call under way.
  ~Client();

  const net::Address& address() const { return address_; }
  // The channel, made anew when it cannot take calls. Several that wait share one attempt, but none
  // fails for an attempt that began before it came: the server may have come back since.
  // Errc::unreachable, Errc::refused (the server refuses this client: tried again only by the next
  // call), Errc::deadline.
  Task<Result<std::shared_ptr<Channel>>> channel(int64_t deadline_ns);
  // Ends the channel; calls under way fail.
  Task<void> close();

 private:
  Task<void> connect();
  Task<Result<std::shared_ptr<Channel>>> attempt();

  ClientContext& context_;
  const net::Address address_;
  const std::shared_ptr<Caller> caller_;
  std::shared_ptr<Channel> channel_;
  bool connecting_ = false;
  uint64_t begun_ = 0;    // attempts
  uint64_t ended_ = 0;    // attempts
  Result<void> outcome_;  // of the last that ended
  Backoff backoff_{context_.rng, kBackoffFirstNs, kBackoffLastNs};
  int64_t not_before_ns_ = 0;  // the next attempt
  Event attempted_;
  Gate gate_;
};

}  // namespace ff::rpc
