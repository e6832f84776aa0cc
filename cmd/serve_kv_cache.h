// The part of `ff serve-kv` for KV caches: its options, and a server on the loop of the gateway
// with a store of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cmd/cli/cli.h"
#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"
#include "platform/net/address.h"
#include "platform/net/transport.h"
#include "storage/gateway/password_check.h"

namespace ff::cmd {

struct KvCacheOptions {
  std::optional<std::string> listen;  // none: KV caches are not served
  std::optional<std::string> tls_cert;
  std::optional<std::string> tls_key;
};

void declare_kv_cache(Command& command, KvCacheOptions& options);
// What the help says of it.
std::string kv_cache_about();
// Errc::usage: they do not go together.
Result<void> check_kv_cache_options(const KvCacheOptions& options);

class KvCacheServer {
 public:
  struct Options {
    KvCacheOptions cache;
    bool keys = false;             // clients need tokens
    bool trusted_network = false;  // nobody can read what clients send
    std::string gateway_address;   // where clients reach the gateway: HOST:PORT
    std::string folder;            // of the gateway
    bool durable = false;
  };
  // Listens, and opens the store. All arguments but `stop` and `options` outlive it; `loop` is
  // theirs.
  static Result<std::unique_ptr<KvCacheServer>> open(const StopToken& stop, Loop& loop, Rng& rng,
                                                     Metrics& metrics, io::Disk& disk,
                                                     const gateway::PasswordCheck& passwords,
                                                     const Options& options);
  // After close().
  ~KvCacheServer();
  KvCacheServer(const KvCacheServer&) = delete;
  KvCacheServer& operator=(const KvCacheServer&) = delete;

  // Lets requests under way end, for some seconds.
  Task<void> close();

  const net::Address& address() const { return address_; }
  uint64_t keys() const;  // of the caches in memory

 private:
  class Impl;
  KvCacheServer();

  std::unique_ptr<Impl> impl_;
  net::Address address_;
};

}  // namespace ff::cmd
