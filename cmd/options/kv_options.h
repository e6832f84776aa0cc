// The key-value store in which a daemon keeps its state: the options --kv and --dir, and the
// store that they name (SQLite, etcd or PostgreSQL).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/base/metrics.h"
#include "platform/io/disk.h"
#include "platform/kv/engine.h"
#include "platform/kv/etcd_gateway.h"
#include "platform/kv/postgres_connection.h"
#include "platform/kv/sqlite_engine.h"

namespace ff::cmd {

// Properties of the store of one daemon.
struct KvProfile {
  const char* section;       // of ff.toml
  const char* env;           // variable of --kv; null: none
  const char* name;          // of the folder, and of the file in it
  const char* daemon;        // that owns the store, for messages
  bool is_shared;            // several daemons may use one etcd or database
  const char* corrupt_hint;  // for the operator of a corrupt file
};
constexpr KvProfile kMetaKv = {
    "serve-meta",
    "FF_KV",
    "meta",
    "serve-meta",
    true,
    "Restore a backup into a new directory with 'ff admin restore', or start with an empty file "
    "with --accept-data-loss: ff then no longer knows the cluster."};
constexpr KvProfile kScheduleKv = {"schedule-serve",
                                   nullptr,
                                   "schedule",
                                   "schedule serve",
                                   false,
                                   "Restore a copy of the file, or start with an empty one with "
                                   "--accept-data-loss: ff then loses all tasks and quotas."};

struct KvOptions {
  KvProfile profile = kMetaKv;
  std::string kv = "sqlite";
  std::optional<std::string> dir = {};
  bool accept_data_loss = false;
  std::optional<std::string> ca = {}, cert = {}, key = {};  // of etcd
};
// All commands read the settings of the daemon's section of ff.toml.
void declare_kv(Command& command, KvOptions& options);

class KvStore {
 public:
  enum class Access : uint8_t {
    exclusive,  // locks the folder, and creates it if it does not exist
    read_only,  // no lock: a daemon may use the store at the same time
  };
  // Errors: usage, refused (another daemon uses the folder), those of SqliteStore::open.
  static Result<std::unique_ptr<KvStore>> open(Clock& clock, const KvOptions& options,
                                               Access access);

  // All must outlive the engine.
  std::unique_ptr<kv::Engine> engine(Loop& loop, Rng& rng, Metrics& metrics);
  // For another loop of the same process.
  std::unique_ptr<kv::Engine> further_engine(Loop& loop, Rng& rng, Metrics& metrics);
  // True if no other process can use the store.
  bool is_exclusive() const { return sqlite_ != nullptr; }
  // For the operator, about the opening of the store.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  KvStore() = default;
  Result<void> open_sqlite(Clock& clock, const KvOptions& options, Access access);
  Result<void> open_etcd(const KvOptions& options);
  Result<void> open_postgres(const KvOptions& options);

  std::unique_ptr<io::File> lock_;
  std::unique_ptr<kv::SqliteStore> sqlite_;
  std::unique_ptr<kv::EtcdGateway> etcd_;
  std::optional<kv::PostgresOptions> postgres_;
  std::vector<std::string> warnings_;
};

}  // namespace ff::cmd
