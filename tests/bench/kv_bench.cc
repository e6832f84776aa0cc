// Transactions as a create of a file makes them: 2 gets and 4 puts, durable. The argument is how
// many are in flight; each of them goes on as soon as it has been answered. plain_sqlite is what
// there is to reach: SQLite's own calls in one thread, as many transactions to a commit, no queue
// and no loop. Each run makes 12,800 transactions on a database that begins empty. The etcd to
// measure is named with FF_BENCH_ETCD=etcd://HOST:PORT,...; without it only SQLite is.
#include <benchmark/benchmark.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/kv/etcd_engine.h"
#include "platform/kv/sqlite_engine.h"

namespace ff::kv {
namespace {

constexpr uint64_t kDirectories = 1000;
constexpr int64_t kTotal = 51200;  // transactions of one run

// The keys and values of one transaction.
struct Create {
  Create(Rng& rng, uint64_t inode)
      : directory(fmt::format("INOD{:08}", rng.below(kDirectories))),
        name(fmt::format("DENT{:08}/file-{}", rng.below(kDirectories), inode)),
        puts{{name, std::string(16, 'd')},
             {fmt::format("INOD{:08}", kDirectories + inode), std::string(120, 'i')},
             {"DIRV" + directory, std::string(16, 'v')},
             {fmt::format("IDEM{:016x}", rng.next()), std::string(40, 'r')}} {}

  std::string directory;  // read
  std::string name;       // read, and not there
  std::pair<std::string, std::string> puts[4];
};

Task<void> create_files(Engine& engine, Rng& rng, uint64_t& next, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const uint64_t inode = next++;
    auto running = engine.run(
        [&](Txn& txn) -> Task<Result<void>> {
          const Create create(rng, inode);
          FF_CO_TRY(const auto parent, co_await txn.get(create.directory));
          FF_CO_TRY(const auto taken, co_await txn.get(create.name));
          if (taken) co_return fail(Errc::exists, "{}", create.name);
          for (const auto& [key, value] : create.puts) txn.put(key, value);
          co_return Result<void>();
        },
        INT64_MAX);
    const auto done = co_await std::move(running);
    if (!done) abort();
  }
}

// state.range(0) tasks at a time on `engine`.
void run_all(benchmark::State& state, Loop& loop, Engine& engine, Rng& rng) {
  uint64_t next = rng.next() >> 8;
  Gate gate(loop);
  for (int64_t i = 0; i < state.range(0); i++) {
    gate.spawn(create_files(engine, rng, next, kTotal / state.range(0)));
  }
  run_task(loop, gate.wait_empty());
}

// A new folder under FF_BENCH_DIR, else /tmp, for the while of one run.
class Folder {
 public:
  Folder() {
    const char* const base = getenv("FF_BENCH_DIR");
    path = std::string(base == nullptr ? "/tmp" : base) + "/kv-bench-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) abort();
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

void etcd_transactions(benchmark::State& state) {
  const char* const url = getenv("FF_BENCH_ETCD");
  if (url == nullptr) return state.SkipWithError("FF_BENCH_ETCD is not set");
  SystemClock clock;
  SystemLoop loop(clock);
  SeededRng rng(system_seed());
  EtcdGateway gateway(parse_etcd_url(url).value());
  EtcdEngine engine(gateway, loop, rng);
  for (auto _ : state) run_all(state, loop, engine, rng);
  state.SetItemsProcessed(state.iterations() * kTotal);
}

void sqlite_transactions(benchmark::State& state) {
  SystemClock clock;
  SeededRng rng(1);
  for (auto _ : state) {
    state.PauseTiming();
    {
      const Folder folder;
      SystemLoop loop(clock);
      const auto store = SqliteStore::open(folder.path + "/kv.db", clock, {}).value();
      SqliteEngine engine(*store, loop);
      state.ResumeTiming();
      run_all(state, loop, engine, rng);
      state.PauseTiming();
    }
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kTotal);
}

// SQLite's calls, which do not fail here.
class Plain {
 public:
  explicit Plain(const std::string& path) {
    check(sqlite3_open(path.c_str(), &db_));
    run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID");
    get_ = prepare("SELECT value FROM kv WHERE key = ?");
    put_ = prepare(
        "INSERT INTO kv (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value");
  }
  ~Plain() {
    sqlite3_finalize(get_);
    sqlite3_finalize(put_);
    sqlite3_close(db_);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  void run(const char* sql) { check(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr)); }
  bool get(const std::string& key, std::string& value) {
    bind(get_, 1, key);
    const bool found = sqlite3_step(get_) == SQLITE_ROW;
    if (found) {
      value.assign(static_cast<const char*>(sqlite3_column_blob(get_, 0)),
                   static_cast<size_t>(sqlite3_column_bytes(get_, 0)));
    }
    check(sqlite3_reset(get_));
    return found;
  }
  void put(const std::string& key, const std::string& value) {
    bind(put_, 1, key);
    bind(put_, 2, value);
    sqlite3_step(put_);
    check(sqlite3_reset(put_));
  }

 private:
  static void check(int status) {
    if (status != SQLITE_OK) abort();
  }
  static void bind(sqlite3_stmt* statement, int index, const std::string& bytes) {
    check(sqlite3_bind_blob(statement, index, bytes.data(), static_cast<int>(bytes.size()),
                            SQLITE_STATIC));
  }
  sqlite3_stmt* prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr));
    return statement;
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt* get_ = nullptr;
  sqlite3_stmt* put_ = nullptr;
};

void plain_sqlite(benchmark::State& state) {
  SeededRng rng(1);
  for (auto _ : state) {
    state.PauseTiming();
    {
      const Folder folder;
      Plain plain(folder.path + "/plain.db");
      uint64_t next = rng.next() >> 8;
      std::string value;
      state.ResumeTiming();
      for (int64_t done = 0; done < kTotal;) {
        plain.run("BEGIN IMMEDIATE");
        for (int64_t i = 0; i < state.range(0) && done < kTotal; i++, done++) {
          const Create create(rng, next++);
          plain.get(create.directory, value);
          if (plain.get(create.name, value)) abort();
          for (const auto& [key, bytes] : create.puts) plain.put(key, bytes);
        }
        plain.run("COMMIT");
      }
      state.PauseTiming();
    }
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kTotal);
}

BENCHMARK(etcd_transactions)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->UseRealTime()->Iterations(1);
BENCHMARK(plain_sqlite)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->UseRealTime()->Iterations(1);
BENCHMARK(sqlite_transactions)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace ff::kv
