// The gateway of a store of keys and values (kvstore/store.h) for clients that speak the protocol
// of Redis. Stateless: a gateway that dies loses nothing that it has acknowledged, and any other
// one continues.
//
// Commands of one client begin in the order in which they arrive, and so do their replies; those on
// different keys may run at the same time, those on one key run one after the other
// (key_locks.h). A command without keys waits for all before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/net/address.h"
#include "platform/net/socket.h"
#include "platform/net/tls.h"
#include "storage/gateway/command.h"
#include "storage/gateway/key_locks.h"
#include "storage/gateway/key_waits.h"
#include "storage/gateway/password_check.h"
#include "storage/gateway/redis_client.h"
#include "storage/kvstore/store.h"

namespace ff::gateway {

class RedisConnection;

struct GatewayOptions {
  std::string software;  // "ff 0.1.0", for INFO
  size_t connections_max = 10'000;
  size_t cache_bytes = 256 * kMiB;  // for values that were read last
  size_t value_max = 64 * kMiB;     // kvstore::Options::max_value_bytes
  uint64_t max_bytes = 0;           // kvstore::Options::max_bytes
  bool durable = false;             // kvstore::Options::durable
  // TLS with certificates of both ends; null: clients connect without TLS.
  std::shared_ptr<const net::TlsContext> certificates = {};
};

// Owned by one loop.
class Gateway {
 public:
  // All arguments outlive the gateway.
  Gateway(Loop& loop, Rng& rng, Metrics& metrics, const PasswordCheck& passwords,
          GatewayOptions options);
  // Only after close().
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Returns the address with the port that the kernel chose. Clients that connect wait for start().
  Result<net::Address> listen(const net::Address& address);
  Result<net::Address> listen(net::InheritedSocket socket);
  // Begins to serve; without listen() only connections that the caller makes. The store outlives
  // close().
  // `address`: where clients reach this process (kvstore::Options::address).
  void start(kvstore::Store& store, std::string address);
  // Accepts no more clients and commands, waits up to `drain_ns` for commands under way and their
  // replies, and ends the rest.
  Task<void> close(int64_t drain_ns);

  // For the commands and connections of the gateway.
  Loop& loop() { return loop_; }
  Rng& rng() { return rng_; }
  const StoreAccess& access() const { return *access_; }
  kvstore::Store& store() const { return access_->store; }
  KeyLocks& locks() { return locks_; }
  KeyWaits& waits() { return waits_; }
  const PasswordCheck& passwords() const { return passwords_; }
  const GatewayOptions& options() const { return options_; }
  const net::Address& address() const { return address_; }
  size_t value_max() const { return options_.value_max; }
  int64_t now_ms() const { return loop_.clock().wall_ns() / kMillisecond; }
  // Runs a command, and appends its reply. Its keys are locked. With `wait`, which may be null, it
  // may ask to run again.
  Task<void> execute(RedisClient& client, const CommandRow& row, const RespRequest& words,
                     std::string& reply, CommandWait* wait);

  // The reply of GET without a read of the disk, appended to `reply`; false: it needs one, or
  // another command has the key.
  bool get_cached(const RedisClient& client, const CommandRow& row, const RespRequest& words,
                  std::string& reply);

  // The open connections, by the ids of their clients. Each adds itself and removes itself.
  void add(uint64_t id, RedisConnection& connection) { connections_.emplace(id, &connection); }
  void remove(uint64_t id) { connections_.erase(id); }
  const std::map<uint64_t, RedisConnection*>& connections() const { return connections_; }
  uint64_t keys() const;  // of the partitions that this process serves
  uint32_t owned_partitions() const;
  uint64_t commands_run() const { return commands_run_; }
  uint64_t connections_accepted() const { return next_id_ - 1; }
  int64_t started_ns() const { return started_ns_; }

 private:
  void admit(net::Socket socket);
  Task<void> serve(net::Socket socket);
  void refuse(net::Socket socket);
  Task<void> sweep();
  Task<void> watch_owners();
  void update_gauges();
  Counter& counter_of(const CommandRow& row);

  Loop& loop_;
  Rng& rng_;
  Metrics& metrics_;
  const PasswordCheck& passwords_;
  const GatewayOptions options_;
  KeyLocks locks_;
  ValueCache cache_;
  WatchedKeys watched_;
  KeyWaits waits_;
  uint64_t losses_ = 0;  // of the store, when watch_owners() looked last
  std::optional<StoreAccess> access_;
  net::Address address_;
  std::unique_ptr<net::SocketListener> listener_;
  std::map<uint64_t, RedisConnection*> connections_;
  size_t connecting_ = 0;  // TLS handshakes
  uint64_t next_id_ = 1;
  uint64_t commands_run_ = 0;
  int64_t started_ns_ = 0;
  std::map<const CommandRow*, Counter*> counters_;
  Histogram& durations_;
  Gate accept_gate_;
  Gate connection_gate_;
};

}  // namespace ff::gateway
