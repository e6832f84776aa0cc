// kv_options.cc: the folder with the SQLite file and its lock, an etcd cluster, or a database of
// PostgreSQL.
#include "cmd/options/kv_options.h"

#include <utility>

#include "platform/base/state_dir.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/kv/etcd_engine.h"
#include "platform/kv/postgres_engine.h"

namespace ff::cmd {
namespace {

constexpr std::string_view kStoreOptions = "Store options";

std::string file_name(const KvOptions& options) {
  return options.profile.name + std::string(".db");
}

Result<std::string> store_folder(const KvOptions& options, KvStore::Access access) {
  io::SystemDisk disk;
  std::string dir;
  if (options.dir) {
    dir = *options.dir;
  } else {
    FF_TRY(const auto state, state_dir(StateUse::daemon, process_state_environment()));
    dir = io::join(state.path, options.profile.name);
  }
  if (access == KvStore::Access::exclusive) {
    FF_TRY(io::make_dirs(disk, dir));
    return dir;
  }
  FF_TRY(const bool there, io::exists(disk, io::join(dir, file_name(options))));
  if (there) return dir;
  return Error{Errc::not_found, fmt::format("{}: contains no {}", dir, file_name(options)),
               fmt::format("Give the directory of a {} with --dir, or another store with --kv.",
                           options.profile.daemon)};
}

// Held until the process ends: two daemons on one file would both become primary.
Result<std::unique_ptr<io::File>> lock_store(const std::string& dir, const KvProfile& profile) {
  io::SystemDisk disk;
  FF_TRY(auto file, io::lock_file(disk, io::join(dir, profile.name + std::string(".lock"))));
  if (file != nullptr) return file;
  return Error{Errc::refused, fmt::format("{}: another {} already uses it", dir, profile.daemon),
               "Stop that daemon, or give another directory with --dir."};
}

}  // namespace

void declare_kv(Command& command, KvOptions& options) {
  const std::string section = options.profile.section + std::string(".");
  Option& kv =
      command.option("--kv", text(options.kv, "STORE"),
                     fmt::format("Where the state is stored: sqlite, in --dir{}; or "
                                 "etcd://HOST:PORT,HOST:PORT,.../PREFIX (etcds:// with TLS) or "
                                 "postgres://USER@HOST,HOST,.../DATABASE{}",
                                 options.profile.is_shared ? ", for one daemon" : "",
                                 options.profile.is_shared ? " for several" : ""));
  kv.config(section + "kv").section(kStoreOptions);
  if (options.profile.env != nullptr) kv.env(options.profile.env);
  command
      .option("--dir", dir(options.dir),
              fmt::format("Directory of the SQLite file; without it ff uses {} under $FF_STATE or "
                          "in the state directory of daemons",
                          options.profile.name))
      .config(section + "dir")
      .section(kStoreOptions);
  // Settings. Their options are from earlier releases.
  command
      .option("--etcd-ca", file(options.ca),
              "PEM certificates of the authorities that may sign the certificate of etcd")
      .config(section + "etcd-ca")
      .hidden();
  command.option("--etcd-cert", file(options.cert), "PEM certificate that ff shows to etcd")
      .config(section + "etcd-cert")
      .hidden();
  command.option("--etcd-key", file(options.key), "PEM key of that certificate")
      .config(section + "etcd-key")
      .hidden();
}

Result<std::unique_ptr<KvStore>> KvStore::open(Clock& clock, const KvOptions& options,
                                               Access access) {
  std::unique_ptr<KvStore> store(new KvStore);
  if (options.kv == "sqlite") {
    FF_TRY(store->open_sqlite(clock, options, access));
  } else if (options.kv.starts_with("postgres")) {
    FF_TRY(store->open_postgres(options));
  } else {
    FF_TRY(store->open_etcd(options));
  }
  return store;
}

Result<void> KvStore::open_sqlite(Clock& clock, const KvOptions& options, Access access) {
  if (options.ca || options.cert || options.key) {
    return Error{Errc::usage,
                 fmt::format("the settings {}.etcd-ca, etcd-cert and etcd-key need etcd",
                             options.profile.section),
                 "Name the cluster with --kv etcds://HOST:PORT,..."};
  }
  FF_TRY(const std::string dir, store_folder(options, access));
  if (access == Access::exclusive) {
    FF_TRY(lock_, lock_store(dir, options.profile));
  }
  kv::SqliteStore::Options how{.owned = access == Access::exclusive,
                               .corrupt_hint = options.profile.corrupt_hint};
  if (options.accept_data_loss) how.on_corrupt = db::OnCorrupt::recreate;
  auto opened = kv::SqliteStore::open(io::join(dir, file_name(options)), clock, how);
  if (!opened) {
    Error error = std::move(opened).error();
    if (error.code == Errc::corrupt) {
      error.hint = options.profile.corrupt_hint;
    }
    return error;
  }
  sqlite_ = std::move(*opened);
  if (!sqlite_->moved_aside().empty()) {
    warnings_.push_back(fmt::format("ff keeps the corrupt file as {} and starts with an empty one",
                                    sqlite_->moved_aside()));
  }
  return {};
}

Result<void> KvStore::open_etcd(const KvOptions& options) {
  if (options.dir || options.accept_data_loss) {
    return fail(Errc::usage, "--dir and --accept-data-loss require --kv sqlite");
  }
  FF_TRY(auto etcd, kv::parse_etcd_url(options.kv));
  if (options.cert.has_value() != options.key.has_value()) {
    return fail(Errc::usage, "the settings etcd-cert and etcd-key need each other");
  }
  if ((options.ca || options.cert) && !etcd.endpoints[0].starts_with("https://")) {
    return Error{Errc::usage, "certificates require TLS, but --kv names etcd://",
                 "Use etcds:// for TLS."};
  }
  io::SystemDisk disk;
  for (const auto& file : {options.ca, options.cert, options.key}) {
    if (!file) continue;
    FF_TRY(disk.open(*file, {}));
  }
  etcd.tls = {options.ca.value_or(""), options.cert.value_or(""), options.key.value_or("")};
  etcd_ = std::make_unique<kv::EtcdGateway>(std::move(etcd));
  return {};
}

Result<void> KvStore::open_postgres(const KvOptions& options) {
  if (options.dir || options.accept_data_loss) {
    return fail(Errc::usage, "--dir and --accept-data-loss require --kv sqlite");
  }
  if (options.ca || options.cert || options.key) {
    return Error{Errc::usage,
                 "the settings etcd-ca, etcd-cert and etcd-key do not apply to PostgreSQL",
                 "Use postgres://...?sslrootcert=FILE&sslcert=FILE&sslkey=FILE."};
  }
  FF_TRY(postgres_, kv::parse_postgres_url(options.kv));
  return {};
}

std::unique_ptr<kv::Engine> KvStore::further_engine(Loop& loop, Rng& rng, Metrics& metrics) {
  if (sqlite_ == nullptr) return engine(loop, rng, metrics);
  return std::make_unique<kv::SqliteEngine>(*sqlite_, loop);
}

std::unique_ptr<kv::Engine> KvStore::engine(Loop& loop, Rng& rng, Metrics& metrics) {
  if (sqlite_ != nullptr) return std::make_unique<kv::SqliteEngine>(*sqlite_, loop, &metrics);
  if (postgres_) return std::make_unique<kv::PostgresEngine>(*postgres_, loop, rng, metrics);
  return std::make_unique<kv::EtcdEngine>(*etcd_, loop, rng, metrics);
}

}  // namespace ff::cmd
