// Where daemons keep what a cluster knows: --kv and --dir, and the store they name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cmd/cli.h"
#include "io/disk.h"
#include "kv/engine.h"
#include "kv/etcd_gateway.h"
#include "kv/sqlite_engine.h"

namespace ff::cmd {

struct KvOptions {
  std::string kv = "sqlite";
  std::optional<std::string> dir;
  bool accept_data_loss = false;
  std::optional<std::string> ca, cert, key;  // of etcd
};
// Their place in ff.toml is that of serve-meta, for all commands.
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
