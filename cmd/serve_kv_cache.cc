// serve_kv_cache.cc: opens the store of the caches beside that of the gateway, and serves it.
#include "cmd/serve_kv_cache.h"

#include <utility>
#include <vector>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/daemon.h"
#include "cmd/serve_kv_exposure.h"
#include "platform/base/gate.h"
#include "platform/http/server.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "platform/net/socket.h"
#include "platform/net/tls.h"
#include "platform/rpc/server.h"
#include "storage/kvcache/cache_service.h"
#include "storage/kvcache/pool_store.h"
#include "storage/kvstore/store.h"

namespace ff::cmd {

namespace {

constexpr int64_t kKvCacheDrainNs = 5 * kSecond;
constexpr int64_t kProbeNs = kSecond;  // for a connection to another gateway

// Where clients reach the service: at the host of the gateway, unless it listens on one of its own.
std::string public_address(const net::Address& listening, const std::string& gateway_address) {
  net::Address address = listening;
  if (!is_every_address(address)) return address.text();
  const auto gateway = net::parse_address(gateway_address);
  address.host = gateway && !gateway->is_unix() ? gateway->host : net::host_name();
  return address.text();
}

Task<bool> accepts_connections(Loop& loop, std::string text) {
  auto address = net::parse_address(text);
  if (!address) co_return false;
  const int64_t until_ns = loop.now_ns() + kProbeNs;
  const auto connected =
      co_await with_deadline(loop, until_ns, text, net::connect_socket(loop, std::move(*address)));
  co_return connected.ok();
}

}  // namespace

class KvCacheServer::Impl {
 public:
  Impl(Loop& loop, http::ServerOptions server, std::string scheme)
      : loop_(loop), scheme_(std::move(scheme)), server_(loop, handler_, std::move(server)) {}

  Result<net::Address> start(const StopToken& stop, Rng& rng, Metrics& metrics, io::Disk& disk,
                             const gateway::PasswordCheck& passwords, const Options& options,
                             const net::Address& address);
  Task<void> close() {
    co_await server_.close(kKvCacheDrainNs);
    if (store_ != nullptr) co_await store_->close();
  }
  uint64_t keys() const { return pools_->keys(); }

 private:
  // Requests wait until start() has a service for them.
  struct Handler final : http::Handler {
    Task<void> handle(http::Exchange& exchange) override { return service->handle(exchange); }
    http::ReplyHead refusal(int status) override { return service->refusal(status); }
    std::string refusal_body(int status, const std::string& why) override {
      return service->refusal_body(status, why);
    }
    kvcache::CacheService* service = nullptr;
  };

  Loop& loop_;
  const std::string scheme_;
  Metrics store_metrics_;  // those of the gateway's store have the same names
  std::unique_ptr<kvstore::Store> store_;
  std::optional<kvcache::PoolStore> pools_;
  std::optional<kvcache::CacheService> service_;
  Handler handler_;
  http::RequestServer server_;
};

Result<net::Address> KvCacheServer::Impl::start(const StopToken& stop, Rng& rng, Metrics& metrics,
                                                io::Disk& disk,
                                                const gateway::PasswordCheck& passwords,
                                                const Options& options,
                                                const net::Address& address) {
  FF_TRY(const auto listening, server_.listen(address));
  kvstore::Options stored;
  stored.address = public_address(listening, options.gateway_address);
  stored.durable = options.durable;
  // Clients ask one gateway, know nothing of slots, and lose their tokens where they are
  // redirected.
  stored.share = false;
  auto opening = kvstore::Store::open(disk, loop_, rng, store_metrics_,
                                      io::join(options.folder, "kv-cache"), std::move(stored));
  FF_TRY(store_, run_task(loop_, cancel_on_stop(loop_, stop, std::move(opening))));
  pools_.emplace(*store_, loop_, rng, metrics);
  kvcache::CacheService::Options service;
  service.scheme = scheme_;
  service.reachable = [&loop = loop_](std::string at) {
    return accepts_connections(loop, std::move(at));
  };
  service_.emplace(*pools_, loop_, metrics, passwords, std::move(service));
  handler_.service = &*service_;
  server_.start();
  return listening;
}

KvCacheServer::KvCacheServer() = default;
KvCacheServer::~KvCacheServer() = default;

Task<void> KvCacheServer::close() { return impl_->close(); }
uint64_t KvCacheServer::keys() const { return impl_->keys(); }

Result<std::unique_ptr<KvCacheServer>> KvCacheServer::open(const StopToken& stop, Loop& loop,
                                                           Rng& rng, Metrics& metrics,
                                                           io::Disk& disk,
                                                           const gateway::PasswordCheck& passwords,
                                                           const Options& options) {
  FF_TRY(const auto address, net::parse_address(*options.cache.listen));
  const KvCacheOptions& cache = options.cache;
  FF_TRY(check_exposure(
      address, {.has_keys = options.keys,
                .encrypted = cache.tls_cert || options.trusted_network,
                .sent = "their tokens",
                .hint = "Give a certificate with --kv-cache-tls-cert and --kv-cache-tls-key, or "
                        "set net.security = \"trusted-network\" where nobody can read the "
                        "network."}));
  http::ServerOptions server;
  server.connections_max = 10'000;
  io::SystemDisk local;
  FF_TRY(server.certificates, gateway_certificate(local, cache.tls_cert, cache.tls_key));
  std::unique_ptr<KvCacheServer> made(new KvCacheServer());
  const std::string scheme = cache.tls_cert ? "https" : "http";
  made->impl_ = std::make_unique<Impl>(loop, std::move(server), scheme);
  auto started = made->impl_->start(stop, rng, metrics, disk, passwords, options, address);
  if (!started) {
    run_task(loop, made->close());
    return std::move(started).error();
  }
  made->address_ = *started;
  return made;
}

Result<void> check_kv_cache_options(const KvCacheOptions& options) {
  if (options.tls_cert.has_value() != options.tls_key.has_value()) {
    return fail(Errc::usage, "--kv-cache-tls-cert and --kv-cache-tls-key go together");
  }
  if (options.tls_cert && !options.listen) {
    return fail(Errc::usage, "--kv-cache-tls-cert: there is no --kv-cache-listen");
  }
  return {};
}

std::string kv_cache_about() {
  std::string names;
  for (const kvcache::CacheOperation& operation : kvcache::cache_operations()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", operation.name);
  }
  return "With --kv-cache-listen, the daemon is the metadata server of KV caches for "
         "SGLang, in place of mini_3fs_metadata_server: it says which page of a file has "
         "the cache of which key, for each rank and namespace. Set metadata_server_url of "
         "SGLang's hf3fs backend to http://HOST:PORT. What it has acknowledged is in "
         "FOLDER/kv-cache and outlives the daemon: another one continues within 10 s, and "
         "no page is ever given to two keys. One gateway has the pages as long as it "
         "runs: others on the same FOLDER redirect requests to it (status 307), or ask "
         "clients to come again (503). When no page is free, the keys that were not used for "
         "longest go. A page "
         "that no client confirms or releases for 10 minutes is free again. The caches "
         "have at most 2,147,483,648 pages for each rank and namespace; keys have at most "
         "1,024 bytes, a request 65,536 keys.\n\n"
         "With --key, clients send a token as 'Authorization: Bearer TOKEN', or as the "
         "password of the user 'default' in the URL (http://default:TOKEN@HOST:PORT, "
         "percent-encoded). The token may do what it may do in Redis's protocol: a user "
         "reads and writes the caches as FOLDER and its mode say. On other addresses than "
         "those of this machine, a certificate (--kv-cache-tls-cert) is needed, or "
         "net.security = \"trusted-network\".\n\n"
         "Operations on KV caches: " +
         names + ".";
}

void declare_kv_cache(Command& command, KvCacheOptions& options) {
  command
      .option("--kv-cache-listen", text(options.listen, "ADDRESS"),
              "Serve the metadata of KV caches to SGLang at this address")
      .config("serve-kv.kv-cache-listen");
  command
      .option("--kv-cache-tls-cert", file(options.tls_cert),
              "PEM certificate to serve KV caches over TLS; clients need none")
      .config("serve-kv.kv-cache-tls-cert");
  command
      .option("--kv-cache-tls-key", file(options.tls_key),
              "Private key of that certificate, in PEM")
      .config("serve-kv.kv-cache-tls-key");
  command.example("ff serve-kv ff:///cache --key cluster.key --kv-cache-listen 127.0.0.1:18000",
                  "the same, and the metadata of KV caches for SGLang");
}

}  // namespace ff::cmd
