// kv_options.cc: the folder with the SQLite file and its lock, or an etcd cluster.
#include "cmd/kv_options.h"

#include <utility>

#include "db/state_dir.h"
#include "io/files.h"
#include "io/system_disk.h"
#include "kv/etcd_engine.h"

namespace ff::cmd {
namespace {

constexpr std::string_view kFile = "meta.db";
constexpr std::string_view kLock = "meta.lock";

Result<std::string> folder(const KvOptions& options, KvStore::Use use) {
  io::SystemDisk disk;
  std::string dir;
  if (options.dir) {
    dir = *options.dir;
  } else {
    FF_TRY(const auto state, db::state_dir(db::StateUse::daemon, db::process_state_sources()));
    dir = io::join(state.path, "meta");
  }
  if (use == KvStore::Use::own) {
    FF_TRY(io::make_dirs(disk, dir));
    return dir;
  }
  FF_TRY(const bool there, io::exists(disk, io::join(dir, std::string(kFile))));
  if (there) return dir;
  return Error{Errc::not_found, fmt::format("{}: there is no {} in it", dir, kFile),
               "Name the folder of a serve-meta with --dir, or etcd with --kv."};
}

// Held as long as the process lives: two daemons on one file would both be primary.
Result<std::unique_ptr<io::File>> take_lock(const std::string& dir) {
  io::SystemDisk disk;
  FF_TRY(auto file, io::lock_file(disk, io::join(dir, std::string(kLock))));
  if (file != nullptr) return file;
  return Error{Errc::refused, fmt::format("{}: another serve-meta is running on it", dir),
               "Stop that one, or name another folder with --dir."};
}

}  // namespace

void declare_kv(Command& command, KvOptions& options) {
  command
      .option("--kv", text(options.kv, "STORE"),
              "sqlite, in --dir, for one daemon; or etcd://HOST:PORT,HOST:PORT,.../PREFIX for "
              "several, etcds:// with TLS")
      .config("serve-meta.kv")
      .env("FF_KV");
  command
      .option("--dir", dir(options.dir),
              "Folder of the SQLite file; else meta under $FF_STATE or the daemon's state folder")
      .config("serve-meta.dir");
  command.option("--etcd-ca", file(options.ca), "PEM certificates of the authorities of etcd's")
      .config("serve-meta.etcd-ca");
  command.option("--etcd-cert", file(options.cert), "PEM certificate to show to etcd")
      .config("serve-meta.etcd-cert");
  command.option("--etcd-key", file(options.key), "PEM key of that certificate")
      .config("serve-meta.etcd-key");
}

Result<std::unique_ptr<KvStore>> KvStore::open(Clock& clock, const KvOptions& options, Use use) {
  std::unique_ptr<KvStore> store(new KvStore);
  FF_TRY(options.kv == "sqlite" ? store->open_sqlite(clock, options, use)
                                : store->open_etcd(options));
  return store;
}

Result<void> KvStore::open_sqlite(Clock& clock, const KvOptions& options, Use use) {
  if (options.ca || options.cert || options.key) {
    return Error{Errc::usage, "--etcd-ca, --etcd-cert and --etcd-key are for etcd",
                 "Name the cluster with --kv etcds://HOST:PORT,..."};
  }
  FF_TRY(const std::string dir, folder(options, use));
  if (use == Use::own) {
    FF_TRY(lock_, take_lock(dir));
  }
  kv::SqliteStore::Options how;
  if (options.accept_data_loss) how.on_corrupt = db::OnCorrupt::start_afresh;
  auto opened = kv::SqliteStore::open(io::join(dir, std::string(kFile)), clock, how);
  if (!opened) {
    Error error = std::move(opened).error();
    if (error.code == Errc::corrupt) {
      error.hint =
          "Restore a backup into a new folder with 'ff admin restore', or start with an empty file "
          "with --accept-data-loss: the cluster is then unknown.";
    }
    return error;
  }
  sqlite_ = std::move(*opened);
  if (!sqlite_->moved_aside().empty()) {
    warnings_.push_back(
        fmt::format("the corrupt file is kept as {}; this one is empty", sqlite_->moved_aside()));
  }
  return {};
}

Result<void> KvStore::open_etcd(const KvOptions& options) {
  if (options.dir || options.accept_data_loss) {
    return fail(Errc::usage, "--dir and --accept-data-loss are for --kv sqlite");
  }
  FF_TRY(auto etcd, kv::parse_etcd_url(options.kv));
  if (options.cert.has_value() != options.key.has_value()) {
    return fail(Errc::usage, "--etcd-cert and --etcd-key belong together");
  }
  if ((options.ca || options.cert) && !etcd.endpoints[0].starts_with("https://")) {
    return Error{Errc::usage, "certificates are for TLS, but --kv names etcd://",
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

std::unique_ptr<kv::Engine> KvStore::engine(Loop& loop, Rng& rng) {
  if (sqlite_ != nullptr) return std::make_unique<kv::SqliteEngine>(*sqlite_, loop);
  return std::make_unique<kv::EtcdEngine>(*etcd_, loop, rng);
}

}  // namespace ff::cmd
