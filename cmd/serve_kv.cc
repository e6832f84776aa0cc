// `ff serve-kv`: a gateway to a store of keys and values for programs that speak Redis's protocol.
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/build_info.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/daemon.h"
#include "cmd/options/cluster_access.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/serve_kv_cache.h"
#include "cmd/serve_kv_exposure.h"
#include "cmd/serve_kv_s3.h"
#include "cmd/serve_kv_sockets.h"
#include "platform/base/audit.h"
#include "platform/base/log.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "platform/rpc/server.h"
#include "storage/client/url.h"
#include "storage/cluster/revocation_poller.h"
#include "storage/gateway/command_table.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/gateway_connection.h"
#include "storage/kvstore/store.h"

namespace ff::cmd {
namespace {

// For commands under way when the gateway stops.
constexpr int64_t kKvDrainNs = 5 * kSecond;

struct ServeKvOptions {
  std::string folder;
  std::string meta = kDefaultMeta;
  DaemonOptions daemon = {.listen = "127.0.0.1:6379", .advertise = {}, .http = {}, .net = {}};
  bool sync = false;
  uint64_t max_bytes = 0;
  uint64_t memory = gateway::GatewayOptions().cache_bytes;
  uint64_t partitions = kvstore::Options().partitions;
  S3Options s3;
  KvCacheOptions cache;
};

// Thousands of clients need a descriptor each.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<void> check_kv(const ServeKvOptions& options, const GatewaySockets& sockets) {
  if (options.partitions == 0 || options.partitions > kvstore::kSlots) {
    return fail(Errc::usage, "--partitions {}: must be from 1 to {}", options.partitions,
                kvstore::kSlots);
  }
  FF_TRY(check_s3_options(options.s3, sockets.s3.has_value()));
  FF_TRY(check_kv_cache_options(options.cache));
  return check_server_options(options.daemon.net);
}

Result<void> check_root_key(const net::TransportOptions& transport) {
  if (transport.keyring == nullptr || transport.keyring->root()) return {};
  Error error = fail(Errc::usage,
                     "gateways need the root key of the cluster to check the tokens of their "
                     "clients, and --key holds {}",
                     transport.keyring->text());
  error.hint = "Give the file that 'openssl rand -hex 32' or 'ff up' made.";
  return error;
}

// A gateway from its options to its end.
class KvServer {
 public:
  KvServer(Session& session, const ServeKvOptions& options, GatewaySockets sockets,
           net::TransportOptions transport)
      : session_(session),
        options_(options),
        sockets_(std::move(sockets)),
        certificates_(transport.certificates),
        keyring_(transport.keyring),
        trusted_network_(transport.trusted_network),
        client_(session.stop, std::move(transport), "serve-kv"),
        passwords_(keyring_, session.stop.clock()),
        gateway_(client_.loop, client_.rng, client_.metrics, passwords_, gateway_options()) {}

  Result<void> run(const net::Address& at);

 private:
  gateway::GatewayOptions gateway_options() const {
    return {.software = fmt::format("ff {}", kBuildInfo.version),
            .cache_bytes = options_.memory,
            .max_bytes = options_.max_bytes,
            .durable = options_.sync,
            .certificates = certificates_};
  }
  Result<void> open_folder();
  Result<void> open_store();
  Result<void> open_s3();
  Result<void> open_cache();
  Result<void> serve(const net::Address& listening);
  void watch_revocations();
  std::string_view security() const;
  std::string status() const;
  Task<void> close();

  Session& session_;
  const ServeKvOptions& options_;
  GatewaySockets sockets_;  // until they are used
  const std::shared_ptr<const net::TlsContext> certificates_;
  const std::shared_ptr<auth::Keyring> keyring_;
  const bool trusted_network_;
  io::SystemDisk local_;
  NetClient client_;
  gateway::PasswordCheck passwords_;
  gateway::Gateway gateway_;
  std::unique_ptr<ClusterAccess> cluster_;
  std::vector<net::Address> managers_;
  std::string folder_;        // for the disk
  std::string cluster_path_;  // of the folder, if it is in a cluster
  std::string address_;       // where clients reach the gateway
  std::unique_ptr<kvstore::Store> store_;
  std::optional<cluster::RevocationPoller> revocations_;
  std::unique_ptr<S3Gateway> s3_;         // null: there is none
  std::unique_ptr<KvCacheServer> cache_;  // likewise
};

Result<void> KvServer::open_folder() {
  folder_ = options_.folder;
  if (!client::is_url(options_.folder)) {
    FF_TRY(managers_, parse_meta(options_.meta));
    return {};
  }
  FF_TRY(const auto url, client::parse_url(options_.folder));
  managers_ = url.servers;
  if (managers_.empty()) {
    FF_TRY(managers_, parse_meta(options_.meta));
  }
  FF_TRY(cluster_,
         ClusterAccess::open(
             session_.stop, local_,
             {.url = url, .meta = options_.meta, .net = options_.daemon.net, .name = "serve-kv"}));
  cluster_path_ = url.path;
  folder_ = cluster_->path(url.path);
  return {};
}

Result<void> KvServer::open_store() {
  io::Disk& disk = cluster_ != nullptr ? cluster_->disk() : local_;
  kvstore::Options options;
  options.address = address_;
  FF_TRY(const auto reached, net::parse_address(address_));
  if (rpc::is_local(reached)) options.host = net::host_name();
  options.partitions = static_cast<uint32_t>(options_.partitions);
  options.max_bytes = options_.max_bytes;
  options.durable = options_.sync;
  auto opening = kvstore::Store::open(disk, client_.loop, client_.rng, client_.metrics, folder_,
                                      std::move(options));
  FF_TRY(store_,
         run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(opening))));
  FF_TRY(const auto info, disk.info(folder_));
  passwords_.set_folder({.owner = info.uid, .mode = info.mode, .cluster_path = cluster_path_});
  return {};
}

Result<void> KvServer::open_s3() {
  if (!options_.s3.root) return {};
  FF_TRY(s3_, S3Gateway::open(session_.stop, client_.metrics,
                              {.s3 = options_.s3,
                               .meta = options_.meta,
                               .net = options_.daemon.net,
                               .durable = options_.sync,
                               .socket = std::move(sockets_.s3)}));
  return {};
}

Result<void> KvServer::open_cache() {
  if (!options_.cache.listen) return {};
  io::Disk& disk = cluster_ != nullptr ? cluster_->disk() : local_;
  FF_TRY(cache_, KvCacheServer::open(session_.stop, client_.loop, client_.rng, client_.metrics,
                                     disk, passwords_,
                                     {.cache = options_.cache,
                                      .keys = keyring_ != nullptr,
                                      .trusted_network = trusted_network_,
                                      .gateway_address = address_,
                                      .folder = folder_,
                                      .durable = options_.sync}));
  return {};
}

void KvServer::watch_revocations() {
  if (keyring_ == nullptr) return;
  revocations_.emplace(client_.context, managers_, *keyring_);
  revocations_->start();
}

std::string_view KvServer::security() const {
  if (keyring_ == nullptr) return "insecure";
  return certificates_ != nullptr ? "tls" : "trusted-network";
}

std::string KvServer::status() const {
  Json json = {{"role", "serve-kv"},
               {"folder", options_.folder},
               {"address", address_},
               {"security", security()},
               {"clients", gateway_.connections().size()},
               {"partitions", store_->partitions()},
               {"owned_partitions", gateway_.owned_partitions()},
               {"keys", gateway_.keys()}};
  json["damage"] = store_->damage();
  if (s3_ != nullptr) json["s3"] = {{"address", s3_->address().text()}, {"root", s3_->root()}};
  if (cache_ != nullptr) {
    json["kv_cache"] = {{"address", cache_->address().text()}, {"keys", cache_->keys()}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Task<void> KvServer::close() {
  co_await gateway_.close(kKvDrainNs);
  if (cache_ != nullptr) co_await cache_->close();
  if (revocations_) co_await revocations_->close();
  co_await store_->close();
}

Result<void> KvServer::serve(const net::Address& listening) {
  FF_TRY(const auto pages, start_http_pages(client_.loop, client_.metrics, options_.daemon.http,
                                            "serve-kv", [this] { return status(); }));
  watch_revocations();
  gateway_.start(*store_, address_);
  session_.out.line("listening on {}", listening.text());
  Json data = {{"listen", listening.text()}, {"address", address_}};
  if (s3_ != nullptr) {
    session_.out.line("s3 on {}", s3_->address().text());
    data["s3"] = s3_->address().text();
  }
  if (cache_ != nullptr) {
    session_.out.line("kv-cache on {}", cache_->address().text());
    data["kv_cache"] = cache_->address().text();
  }
  if (pages != nullptr) {
    session_.out.line("pages on port {}", pages->port());
    data["http_port"] = pages->port();
  }
  if (!passwords_.required()) {
    log_warning(
        "every process of this machine may do everything here: there is no key "
        "(--insecure)");
  }
  auto reported = session_.out.emit(data);
  notify_systemd("READY=1");
  if (reported) run_task(client_.loop, wait_for_stop(client_.loop, session_.stop));
  notify_systemd("STOPPING=1");
  log_info("stopping");
  return reported;
}

Result<void> KvServer::run(const net::Address& at) {
  FF_TRY(const auto listening,
         sockets_.redis ? gateway_.listen(std::move(*sockets_.redis)) : gateway_.listen(at));
  FF_TRY(address_, advertised_address(options_.daemon, listening));
  FF_TRY(open_folder());
  FF_TRY(open_store());
  auto served = open_s3();
  if (served) served = open_cache();
  if (served) served = serve(listening);
  if (s3_ != nullptr) s3_->close();
  run_task(client_.loop, close());
  return served;
}

Result<void> run_serve_kv(Session& session, const ServeKvOptions& options) {
  log_setup({.level = session.out.mode().verbose ? LogLevel::debug : LogLevel::info,
             .json = options.daemon.log_json});
  FF_TRY(auto sockets, take_gateway_sockets());
  FF_TRY(check_kv(options, sockets));
  if (options.daemon.audit) FF_TRY(audit_setup(*options.daemon.audit, session.stop.clock()));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.daemon.net, auth::Role::meta));
  FF_TRY(check_root_key(transport));
  FF_TRY(auto wanted, net::parse_address(options.daemon.listen));
  if (sockets.redis) wanted = sockets.redis->address;
  FF_TRY(check_exposure(
      wanted, {.has_keys = transport.keyring != nullptr,
               .encrypted = transport.certificates != nullptr || transport.trusted_network,
               .sent = "their tokens",
               .hint = "Set net.tls-cert, net.tls-key and net.tls-ca for TLS, or net.security = "
                       "\"trusted-network\" where nobody can read the network."}));
  raise_descriptor_limit();
  KvServer server(session, options, std::move(sockets), std::move(transport));
  return server.run(wanted);
}

// "string: APPEND, DECR, ..." for each group of commands.
std::string command_list() {
  std::string text;
  std::string_view group;
  for (const gateway::CommandRow& row : gateway::command_table()) {
    text +=
        row.group == group ? ", " : fmt::format("{}{}: ", text.empty() ? "" : "\n\n", row.group);
    group = row.group;
    text += gateway::upper_case(row.name);
  }
  return text;
}

std::string sharing_about() {
  return "Several gateways on one FOLDER share its keys: each serves as many partitions of the "
         "store as the others, and replies MOVED to commands on other keys, as Redis Cluster "
         "does. CLUSTER SLOTS and CLUSTER SHARDS tell clients in cluster mode where to ask. A "
         "gateway that is started gets its share within seconds; while a partition goes to it, "
         "commands wait, for less than a second as a rule, and nothing acknowledged is lost. When "
         "a gateway dies, the others take its partitions over within 10 s; when it is stopped, at "
         "once. While several gateways run, the keys of a command must be of one slot, and SCAN, "
         "KEYS, RANDOMKEY, DBSIZE, FLUSHALL and INFO are about the keys of the gateway that is "
         "asked; a SCAN may miss keys that change their gateway meanwhile. For clients without "
         "cluster mode, run one gateway: it has all keys.\n\nGive all gateways an ff:// FOLDER, "
         "not a mount; one user, or they cannot read each other's files; and addresses that the "
         "same clients reach (--listen, --advertise): one that only its own machine reaches stands "
         "by for the others.";
}

}  // namespace

void declare_serve_kv(Command& serve) {
  auto& options = serve.keep<ServeKvOptions>();
  serve.about(
      "Serves a store of keys and values to programs that speak the protocol of Redis (versions 2 "
      "and 3). FOLDER is a local folder, or ff://HOST:PORT[,HOST:PORT]/PATH in a cluster "
      "(ff:///PATH uses --meta); the store is made if there is none. The folder has everything: a "
      "gateway may be killed, and started on any machine.\n\nWhat a gateway has acknowledged is "
      "not lost when it dies; with --sync not by a power loss either.\n\n" +
      sharing_about() +
      "\n\nThe commands of one client begin in their order, and those on one key run "
      "one after the other, for all clients. EXEC is atomic, and its keys must be of one slot, as "
      "in Redis Cluster: write a common part of their names in braces, {user1}:name and "
      "{user1}:mail. MSET, DEL and RENAME of keys of several slots are not atomic. A hash is one "
      "value: a change of a field writes all of it. Keys have at most 32,767 bytes, values 64 MiB; "
      "there is one database. When the disk is full, writes get the error MISCONF, and reads go "
      "on.\n\nA stream with a consumer group is a queue that delivers each message at least once: "
      "XREADGROUP gives an entry to one consumer, it stays pending until that one sends XACK, and "
      "XAUTOCLAIM gives what a dead consumer has left to another one. Entries, groups and what is "
      "pending outlive a killed gateway like every other change. A stream lies in pages of up to "
      "64 entries or about 4 KiB, so XADD, XREADGROUP and XACK cost the same however long it is; "
      "XTRIM with ~ removes whole pages. Lists and sets lie in pages, too; COPY of one, and RENAME "
      "to another slot, write all of it with one change, of at most 64 MiB. With BLOCK, BLPOP and "
      "their kin, a client waits without polling. --max-bytes evicts no streams, lists and sets: "
      "when they fill it, writes get MISCONF.\n\nWith --key, which must hold the root key of the "
      "cluster, clients log in with AUTH or HELLO AUTH. The password is the text of a token ('ff "
      "admin user token') or another key file, in lines or with spaces in their place; the user is "
      "'default' or the name in the token. The gateway checks it with the root key, without asking "
      "the cluster; it follows the revoked keys of --meta or of FOLDER, and ends clients with such "
      "keys. A token reads and writes if its user owns FOLDER, otherwise as the mode of FOLDER "
      "says for others.\n\nClients on other machines need TLS, which the settings net.tls-cert, "
      "net.tls-key and net.tls-ca turn on (clients need certificates, too), or net.security = "
      "\"trusted-network\".\n\n" +
      sockets_about() + "\n\nCommands:\n\n" + command_list() + "\n\n" + s3_about() + "\n\n" +
      kv_cache_about());
  serve.argument("FOLDER", text(options.folder, "FOLDER"), "Folder of the store");
  declare_meta(serve, options.meta);
  serve
      .flag("--sync", options.sync,
            "Acknowledge changes when they are durable: a power loss then loses none, and each "
            "change waits for the disk")
      .config("serve-kv.sync");
  serve
      .option("--max-bytes", size(options.max_bytes),
              "Evict the keys that were not used for longest when the store has more bytes; 0: no "
              "limit")
      .config("serve-kv.max-bytes");
  serve.option("--memory", size(options.memory), "Memory for the values that were read last")
      .config("serve-kv.memory");
  serve
      .option("--partitions", number(options.partitions, "N"),
              "Parts of a new store, each with a file that is written one change after the other")
      .config("serve-kv.partitions");
  declare_s3(serve, options.s3);
  declare_kv_cache(serve, options.cache);
  declare_daemon(serve, options.daemon, "serve-kv");
  serve.example("ff serve-kv ff:///cache --key cluster.key", "a cache in the file system");
  serve.example("ff serve-kv /data/kv --insecure --max-bytes 100GiB",
                "on one machine, for all of its programs");
  serve.example(
      "ff serve-kv ff:///cache --key cluster.key --s3-listen 127.0.0.1:9000 --s3-root "
      "ff:///objects",
      "the same, and files for clients of S3");
  serve.run([&options](Session& session) { return run_serve_kv(session, options); });
}

}  // namespace ff::cmd
