// Transactions as a create of a file makes them: 2 gets and 4 puts, durable. The argument is how
// many are in flight; each of them goes on as soon as it has been answered. The etcd to measure is
// named with FF_BENCH_ETCD=etcd://HOST:PORT,...; without it only SQLite is.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/gate.h"
#include "base/rng.h"
#include "base/system_loop.h"
#include "kv/etcd_engine.h"
#include "kv/sqlite_engine.h"

namespace ff::kv {
namespace {

constexpr uint64_t kDirectories = 1000;
constexpr int kEach = 200;  // transactions of one task in one round

Task<void> create_files(Engine& engine, Rng& rng, uint64_t& next) {
  for (int i = 0; i < kEach; i++) {
    const uint64_t inode = next++;
    const std::string directory = fmt::format("INOD{:08}", rng.below(kDirectories));
    const std::string name = fmt::format("DENT{:08}/file-{}", rng.below(kDirectories), inode);
    auto running = engine.run(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(const auto parent, co_await txn.get(directory));
          FF_CO_TRY(const auto taken, co_await txn.get(name));
          if (taken) co_return fail(Errc::exists, "{}", name);
          txn.put(name, std::string(16, 'd'));
          txn.put(fmt::format("INOD{:08}", kDirectories + inode), std::string(120, 'i'));
          txn.put("DIRV" + directory, std::string(16, 'v'));
          txn.put(fmt::format("IDEM{:016x}", rng.next()), std::string(40, 'r'));
          co_return Result<void>();
        },
        INT64_MAX);
    const auto done = co_await std::move(running);
    if (!done) abort();
  }
}

// state.range(0) tasks at a time on `engine`.
void measure(benchmark::State& state, Loop& loop, Engine& engine, Rng& rng) {
  uint64_t next = rng.next() >> 8;
  const uint64_t first = next;
  for (auto _ : state) {
    Gate gate(loop);
    for (int64_t i = 0; i < state.range(0); i++) gate.spawn(create_files(engine, rng, next));
    run_task(loop, gate.wait_empty());
  }
  state.SetItemsProcessed(static_cast<int64_t>(next - first));
}

void etcd_transactions(benchmark::State& state) {
  const char* const url = getenv("FF_BENCH_ETCD");
  if (url == nullptr) return state.SkipWithError("FF_BENCH_ETCD is not set");
  SystemClock clock;
  SystemLoop loop(clock);
  SeededRng rng(system_seed());
  EtcdGateway gateway(parse_etcd_url(url).value());
  EtcdEngine engine(gateway, loop, rng);
  measure(state, loop, engine, rng);
}
BENCHMARK(etcd_transactions)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->UseRealTime();

void sqlite_transactions(benchmark::State& state) {
  const char* const base = getenv("FF_BENCH_DIR");
  std::string dir = std::string(base == nullptr ? "/tmp" : base) + "/kv-bench-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) return state.SkipWithError("no folder");
  {
    SystemClock clock;
    SystemLoop loop(clock);
    SeededRng rng(1);
    const auto store = SqliteStore::open(dir + "/kv.db", clock, {}).value();
    SqliteEngine engine(*store, loop);
    measure(state, loop, engine, rng);
  }
  std::filesystem::remove_all(dir);
}
BENCHMARK(sqlite_transactions)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->UseRealTime();

}  // namespace
}  // namespace ff::kv
