// `ff serve-meta`: the daemon of the cluster manager and of the metadata service, which
// store their state in SQLite, etcd or PostgreSQL.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cmd/cli/daemon.h"
#include "cmd/options/kv_options.h"
#include "platform/base/log.h"
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
};

std::string meta_status(const cluster::ManagerService& manager, const std::string& address) {
  const auto halted = manager.halted();
  Json json = {{"role", "serve-meta"},
               {"address", address},
               {"primary", manager.is_primary()},
               {"epoch", manager.epoch()}};
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
  FF_TRY(const auto daemon, Daemon::make(session, options.daemon, auth::Role::meta, "serve-meta"));
  FF_TRY(const auto store,
         KvStore::open(session.stop.clock(), options.kv, KvStore::Access::exclusive));
  for (const std::string& warning : store->warnings()) log_warning(warning);
  const auto engine = store->engine(daemon->loop(), daemon->rng(), daemon->metrics());
  auth::Keyring* const keyring = daemon->client().transport.keyring();
  if (keyring != nullptr && !keyring->root()) return needs_root_key(*keyring);
  cluster::ManagerService manager(*engine, daemon->loop(), daemon->rng(), daemon->router());
  cluster::KeyService keys(*engine, daemon->loop(), daemon->router(), keyring);
  meta::MetaService files(*engine, daemon->client(), daemon->router(),
                          {.key = keyring != nullptr ? keyring->root() : std::nullopt,
                           .primary = [&manager] { return manager.is_primary(); },
                           .collect_after_ns = options.collect_after_ns,
                           .root_squash = options.root_squash});
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
  };
  service.drain = [&manager] { return manager.close(); };
  service.close = [&files, &keys]() -> Task<void> {
    co_await keys.close();
    co_await files.close();
  };
  service.status = [&] { return meta_status(manager, address); };
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
  declare_daemon(meta, options.daemon, "serve-meta");
  meta.example("ff serve-meta --key cluster.key", "one machine, with its state under /var/lib/ff");
  meta.example("ff serve-meta --listen '*:4400' --key cluster.key --kv etcd://m1,m2,m3",
               "one of three managers");
  meta.run([&options](Session& session) { return run_serve_meta(session, options); });
}

}  // namespace ff::cmd
