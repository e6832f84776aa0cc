// A store and engines on it, for the tests that every engine must pass.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/engine.h"
#include "platform/kv/etcd_cluster.h"
#include "platform/kv/etcd_engine.h"
#include "platform/kv/memory_engine.h"
#include "platform/kv/postgres_engine.h"
#include "platform/kv/postgres_server.h"
#include "platform/kv/sqlite_engine.h"

namespace ff::kv {

// One store. Engines of different loops see each other's commits.
class TestedStore {
 public:
  virtual ~TestedStore() = default;
  virtual std::unique_ptr<Engine> engine(Loop& loop) = 0;
  // Whether loops of several threads may use it.
  virtual bool threads() const = 0;
};

struct EngineKind {
  std::string name;
  std::function<std::unique_ptr<TestedStore>()> make;
};
inline void PrintTo(const EngineKind& kind, std::ostream* out) { *out << kind.name; }

class MemoryTested final : public TestedStore {
 public:
  explicit MemoryTested(MemoryFaults faults) : faults_(faults) {}
  std::unique_ptr<Engine> engine(Loop& loop) override {
    return std::make_unique<MemoryEngine>(store_, loop, rng_, faults_);
  }
  bool threads() const override { return false; }

 private:
  MemoryFaults faults_;
  MemoryStore store_;
  SeededRng rng_{7};
};

class SqliteTested final : public TestedStore {
 public:
  SqliteTested() { store_ = SqliteStore::open(dir_ / "kv.db", clock_, {}).value(); }
  std::unique_ptr<Engine> engine(Loop& loop) override {
    return std::make_unique<SqliteEngine>(*store_, loop);
  }
  bool threads() const override { return true; }

 private:
  SystemClock clock_;
  io::TempDir dir_;
  std::unique_ptr<SqliteStore> store_;
};

// An EtcdEngine with random numbers of its own.
class SeededEtcdEngine final : public Engine {
 public:
  SeededEtcdEngine(EtcdGateway& etcd, Loop& loop, uint64_t seed)
      : rng_(seed), engine_(etcd, loop, rng_, metrics_) {}
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override {
    return engine_.run(std::move(function), deadline_ns);
  }
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override {
    return engine_.view(std::move(function), deadline_ns);
  }

 private:
  SeededRng rng_;
  Metrics metrics_;
  EtcdEngine engine_;
};

class EtcdTested final : public TestedStore {
 public:
  std::unique_ptr<Engine> engine(Loop& loop) override {
    return std::make_unique<SeededEtcdEngine>(gateway_, loop, seed_++);
  }
  bool threads() const override { return true; }

 private:
  EtcdCluster cluster_{1};
  EtcdGateway gateway_{cluster_.options()};
  std::atomic<uint64_t> seed_{1};
};

// A PostgresEngine with random numbers of its own.
class SeededPostgresEngine final : public Engine {
 public:
  SeededPostgresEngine(PostgresOptions options, Loop& loop, uint64_t seed)
      : rng_(seed), engine_(std::move(options), loop, rng_, metrics_) {}
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override {
    return engine_.run(std::move(function), deadline_ns);
  }
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override {
    return engine_.view(std::move(function), deadline_ns);
  }

 private:
  SeededRng rng_;
  Metrics metrics_;
  PostgresEngine engine_;
};

// A database of its own, on a server that all tests of the process share.
class PostgresTested final : public TestedStore {
 public:
  std::unique_ptr<Engine> engine(Loop& loop) override {
    return std::make_unique<SeededPostgresEngine>(options_, loop, seed_++);
  }
  bool threads() const override { return true; }

 private:
  PostgresOptions options_ =
      PostgresServer::options({shared_postgres().port()}, shared_postgres().create_database());
  std::atomic<uint64_t> seed_{1};
};

inline std::vector<EngineKind> engine_kinds() {
  return {
      {"memory", [] { return std::make_unique<MemoryTested>(MemoryFaults{}); }},
      {"memory_with_faults",
       [] {
         return std::make_unique<MemoryTested>(
             MemoryFaults{.delay_max_ns = 100'000, .conflict = 0.1, .lost_answer = 0.1});
       }},
      {"sqlite", [] { return std::make_unique<SqliteTested>(); }},
      {"etcd", [] { return std::make_unique<EtcdTested>(); }},
      {"postgres", [] { return std::make_unique<PostgresTested>(); }},
  };
}

}  // namespace ff::kv
