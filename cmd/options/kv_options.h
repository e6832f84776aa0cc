// Where daemons keep what a cluster knows: --kv and --dir, and the store they name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "platform/io/disk.h"
#include "platform/kv/engine.h"
#include "platform/kv/etcd_gateway.h"
#include "platform/kv/sqlite_engine.h"

namespace ff::cmd {

// Whose store it is.
struct KvPlace {
  const char* section;  // of ff.toml
  const char* env;      // of --kv; null: none
  const char* name;     // of the folder, and of the file in it
  const char* daemon;   // that has it
  bool is_shared;       // several daemons may be on one etcd
  const char* corrupt;  // what to do then
};
constexpr KvPlace kMetaPlace = {
    "serve-meta",
    "FF_KV",
    "meta",
    "serve-meta",
    true,
    "Restore a backup into a new directory with 'ff admin restore', or start with an empty file "
    "with --accept-data-loss: ff then no longer knows the cluster."};
constexpr KvPlace kSchedulePlace = {"schedule-serve",
                                    nullptr,
                                    "schedule",
                                    "schedule serve",
                                    false,
                                    "Restore a copy of the file, or start with an empty one with "
                                    "--accept-data-loss: ff then loses all tasks and quotas."};

struct KvOptions {
  KvPlace place = kMetaPlace;
  std::string kv = "sqlite";
  std::optional<std::string> dir = {};
  bool accept_data_loss = false;
  std::optional<std::string> ca = {}, cert = {}, key = {};  // of etcd
};
// Their place in ff.toml is that of the daemon, for all commands.
void declare_kv(Command& command, KvOptions& options);

class KvStore {
 public:
  enum class Use : uint8_t {
    own,     // alone in the folder, which is made when it is not there
    beside,  // whoever has it: to look only
  };
  // Errors: usage, refused (another daemon has the folder), those of SqliteStore::open.
  static Result<std::unique_ptr<KvStore>> open(Clock& clock, const KvOptions& options, Use use);

  // `rng` outlives it.
  std::unique_ptr<kv::Engine> engine(Loop& loop, Rng& rng);
  // Whether no other process can use the store.
  bool alone() const { return sqlite_ != nullptr; }
  // What the operator should know about how it was opened.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  KvStore() = default;
  Result<void> open_sqlite(Clock& clock, const KvOptions& options, Use use);
  Result<void> open_etcd(const KvOptions& options);

  std::unique_ptr<io::File> lock_;
  std::unique_ptr<kv::SqliteStore> sqlite_;
  std::unique_ptr<kv::EtcdGateway> etcd_;
  std::vector<std::string> warnings_;
};

}  // namespace ff::cmd
