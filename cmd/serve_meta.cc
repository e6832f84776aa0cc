// `ff serve-meta`: the daemon of the cluster manager and of the metadata service, which
// store their state in SQLite, etcd or PostgreSQL.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/daemon.h"
#include "cmd/options/kv_options.h"
#include "platform/base/cpus.h"
#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/io/files.h"
#include "storage/cluster/key_service.h"
#include "storage/cluster/manager_service.h"
#include "storage/meta/meta_service.h"

namespace ff::cmd {
namespace {

struct ServeMetaOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4400", .advertise = {}, .http = {}, .net = {}};
  KvOptions kv;
  int64_t collect_after_ns = 300 * kSecond;
  int64_t keep_lost_ns = int64_t{7} * 24 * 3600 * kSecond;
  bool root_squash = false;
  std::optional<uint64_t> loops;
};

constexpr size_t kDefaultLoopsMax = 4;
constexpr uint64_t kLoopsMax = 64;

// With SQLite one per CPU, up to 4. Another store does the work on other CPUs, and serves the reads
// of one loop together.
uint64_t default_loops(const KvStore& store) {
  if (!store.is_exclusive()) return 1;
  return std::clamp<size_t>(usable_cpus().size(), 1, kDefaultLoopsMax);
}

// The metadata service of a further loop of the daemon. It lives in that loop.
class FurtherLoop {
 public:
  FurtherLoop(Daemon& daemon, Daemon::Shard& shard, KvStore& store,
              meta::MetaService::Options options)
      : daemon_(daemon), shard_(shard) {
    in_loop([&, options = std::move(options)] {
      engine_ = store.further_engine(shard.loop, shard.rng, daemon.metrics());
      files_.emplace(*engine_, shard.client, shard.router, options);
    });
  }
  ~FurtherLoop() {
    in_loop([this] {
      files_.reset();
      engine_.reset();
    });
  }
  FurtherLoop(const FurtherLoop&) = delete;
  FurtherLoop& operator=(const FurtherLoop&) = delete;

  void start() {
    in_loop([this] { files_->start(); });
  }
  Task<void> close() { return run_on(daemon_.loop(), shard_.calls, files_->close()); }

 private:
  void in_loop(const std::function<void()>& act) {
    const auto acting = [](const std::function<void()>& what) -> Task<void> {
      what();
      co_return;
    };
    run_task(daemon_.loop(), run_on(daemon_.loop(), shard_.calls, acting(act)));
  }

  Daemon& daemon_;
  Daemon::Shard& shard_;
  std::unique_ptr<kv::Engine> engine_;
  std::optional<meta::MetaService> files_;
};

std::string meta_status(const cluster::ManagerService& manager, const std::string& address,
                        uint64_t loops) {
  const auto halted = manager.halted();
  Json json = {{"role", "serve-meta"},
               {"address", address},
               {"primary", manager.is_primary()},
               {"epoch", manager.epoch()},
               {"loops", loops}};
  json["halted"] = halted ? Json(halted->message) : Json(nullptr);
  return json.dump();
}

Error needs_root_key(const auth::Keyring& keyring) {
  Error error = fail(Errc::usage, "managers need the root key of the cluster, and --key holds {}",
                     keyring.text());
  error.hint = "Give the file that 'openssl rand -hex 32' or 'ff up' made.";
  return error;
}

Result<void> run_serve_meta(Session& session, const ServeMetaOptions& options) {
  if (options.loops && (*options.loops == 0 || *options.loops > kLoopsMax)) {
    return fail(Errc::usage, "serve-meta.loops {}: must be from 1 to {}", *options.loops,
                kLoopsMax);
  }
  FF_TRY(const auto daemon, Daemon::make(session, options.daemon, auth::Role::meta, "serve-meta"));
  FF_TRY(const auto store,
         KvStore::open(session.stop.clock(), options.kv, KvStore::Access::exclusive));
  for (const std::string& warning : store->warnings()) log_warning(warning);
  const uint64_t loops = options.loops.value_or(default_loops(*store));
  daemon->start_shards(static_cast<uint32_t>(loops));
  const auto engine = store->engine(daemon->loop(), daemon->rng(), daemon->metrics());
  auth::Keyring* const keyring = daemon->client().transport.keyring();
  if (keyring != nullptr && !keyring->root()) return needs_root_key(*keyring);
  cluster::ManagerService manager(*engine, daemon->loop(), daemon->rng(), daemon->router());
  cluster::KeyService keys(*engine, daemon->loop(), daemon->router(), keyring);
  meta::MetaService::Options serving{.key = keyring != nullptr ? keyring->root() : std::nullopt,
                                     .primary = [&manager] { return manager.is_primary(); },
                                     .collect_after_ns = options.collect_after_ns,
                                     .root_squash = options.root_squash};
  meta::MetaService files(*engine, daemon->client(), daemon->router(), serving);
  serving.first = &files;
  std::vector<std::unique_ptr<FurtherLoop>> further;
  for (const auto& shard : daemon->shards()) {
    further.push_back(std::make_unique<FurtherLoop>(*daemon, *shard, *store, serving));
  }
  std::string address;
  Daemon::Service service;
  service.start = [&](const std::string& at) {
    address = at;
    manager.start({.address = at,
                   .sole_manager = store->is_exclusive(),
                   .lost_retention_ns = options.keep_lost_ns,
                   .keyring = keyring,
                   .metrics = &daemon->metrics()});
    keys.start();
    files.start();
    for (const auto& loop : further) loop->start();
  };
  service.drain = [&manager] { return manager.close(); };
  service.close = [&files, &further, &keys]() -> Task<void> {
    for (const auto& loop : further) co_await loop->close();
    co_await keys.close();
    co_await files.close();
  };
  service.status = [&] { return meta_status(manager, address, loops); };
  return daemon->run(std::move(service));
}

}  // namespace

void declare_serve_meta(Command& meta) {
  auto& options = meta.keep<ServeMetaOptions>();
  meta.about(
      "Runs the cluster manager (live nodes, chains and the states of their targets) and the "
      "metadata service (names, permissions and lengths of files). By default the daemon keeps its "
      "state in SQLite under --dir and needs no other service. For several machines, start it on "
      "three of them with --kv etcd://... or --kv postgres://... and the same key: one is primary, "
      "and another takes over within four seconds; all of them serve metadata. ff-cluster(7) says "
      "which store fits how many files.\n\nCreate a new cluster once with 'ff "
      "admin init'. SIGTERM stops the daemon; a primary first hands over its role.\n\netcd keeps "
      "every old revision unless it is configured otherwise: run it with "
      "--auto-compaction-mode=periodic --auto-compaction-retention=10m.\n\nPostgreSQL (version 14 "
      "or "
      "later): the password comes from a passfile (~/.pgpass, or ?passfile=FILE in the URL), never "
      "from the URL. ff verifies the server's certificate, unless the URL says sslmode=..., with "
      "the authorities of the system or of ?sslrootcert=FILE.");
  declare_kv(meta, options.kv);
  meta.flag("--accept-data-loss", options.kv.accept_data_loss,
            "Start with an empty SQLite file if the file is corrupt; ff keeps the corrupt file");
  meta.option("--collect-after", duration(options.collect_after_ns),
              "How long the data of a removed file stays, for programs that still read it; "
              "while a disk is nearly full, it does not stay")
      .config("serve-meta.collect-after");
  meta.option("--keep-lost", duration(options.keep_lost_ns),
              "How long nodes keep replicas that 'ff admin accept-loss' has set aside")
      .config("serve-meta.keep-lost");
  meta.flag("--root-squash", options.root_squash, "Map root of client machines to nobody (65534)")
      .config("serve-meta.root-squash");
  meta.option("--loops", number(options.loops, "N"),
              "Number of loops, each with a thread and the clients that it serves; default: with "
              "SQLite one per CPU, up to 4; with other stores 1")
      .config("serve-meta.loops")
      .hidden();
  declare_daemon(meta, options.daemon, "serve-meta");
  meta.example("ff serve-meta --key cluster.key", "one machine, with its state under /var/lib/ff");
  meta.example("ff serve-meta --listen '*:4400' --key cluster.key --kv etcd://m1,m2,m3",
               "one of three managers");
  meta.run([&options](Session& session) { return run_serve_meta(session, options); });
}

}  // namespace ff::cmd
