// A client of one server: keeps a channel to it and reconnects with exponential backoff. Owned by
// one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/backoff.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/net/transport.h"
#include "platform/rpc/channel.h"
#include "platform/rpc/grant_scheduler.h"
#include "platform/rpc/handshake.h"

namespace ff::rpc {

// Between attempts to connect (base/backoff.h).
constexpr int64_t kBackoffFirstNs = 50 * kMillisecond;
constexpr int64_t kBackoffLastNs = 5 * kSecond;
// After this time without received bytes, channel() first reads what has arrived, since the
// connection may have been closed meanwhile.
constexpr int64_t kStaleChannelNs = kMillisecond;

// Shared by the clients of one loop. It and its members must outlive them.
struct ClientContext {
  Loop& loop;
  net::Transport& transport;
  GrantScheduler& grants;
  Metrics& metrics;
  Rng& rng;
  Identity self;
  ClientCallMetrics calls{metrics};
};

// A client instance with a new random id.
std::shared_ptr<ClientInstance> new_client_instance(Rng& rng);

class Client {
 public:
  // `service`: what the server must prove to be. `instance`: shared with other clients of the same
  // server; the server serves only the newest connection of an instance. Null: a new instance.
  Client(ClientContext& context, net::Address address, auth::Service service,
         std::shared_ptr<ClientInstance> instance = nullptr);
  // Only after close(), or with no call in flight.
  ~Client();

  // The server may choose the shard that serves this client. Before the first channel().
  void use_any_shard() { instance_->any_shard = true; }
  const net::Address& address() const { return address_; }
  // Returns a usable channel, and connects if there is none. Concurrent callers share one attempt;
  // an attempt that began before this call cannot make it fail, since the server may have come back
  // since then. Errc::unreachable, Errc::refused (the server refuses this client; only the next
  // call tries again), Errc::deadline.
  Task<Result<std::shared_ptr<Channel>>> channel(int64_t deadline_ns);
  // Closes the channel; calls in flight fail.
  Task<void> close();

 private:
  // Whether the channel was made with a ticket that ends soon, and there is a newer one.
  bool has_newer_credential() const;
  int64_t credential_end_s() const;
  Task<void> connect();
  Task<Result<std::shared_ptr<Channel>>> attempt();
  Task<Result<std::shared_ptr<Channel>>> open_channel(net::Address address);

  ClientContext& context_;
  const net::Address address_;
  const auth::Service service_;
  const std::shared_ptr<ClientInstance> instance_;
  std::shared_ptr<Channel> channel_;
  int64_t channel_end_s_ = 0;  // when the credential of the channel ends; 0: never
  // What the server has chosen. It stays so, because the server looks for older connections of this
  // client in the same shard only.
  std::optional<uint32_t> shard_;
  bool failed_ = false;  // the last attempt
  bool connecting_ = false;
  uint64_t begun_ = 0;    // attempts
  uint64_t ended_ = 0;    // attempts
  Result<void> outcome_;  // of the last finished attempt
  Backoff backoff_{context_.rng, kBackoffFirstNs, kBackoffLastNs};
  int64_t not_before_ns_ = 0;  // earliest time of the next attempt
  Event attempted_;
  Gate gate_;
};

}  // namespace ff::rpc
