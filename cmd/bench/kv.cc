// `ff bench kv`: whether a store is fit for the metadata service, and how fast it is.
#include <string>
#include <utility>

#include "cmd/bench/bench.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/kv_options.h"
#include "lab/bench/kv_load.h"
#include "platform/auth/key.h"
#include "platform/base/system_loop.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

constexpr unsigned kTransactionsInFlightMax = 4096;

struct BenchKvOptions {
  std::string engine = "sqlite";
  std::optional<std::string> dir;
  uint64_t files = 20'000;
  unsigned in_flight = 256;
  uint64_t existing = 0;
  bool keep = false;
};

Task<Result<std::vector<bench::KvPhaseResult>>> measure_kv(kv::Engine& engine, Loop& loop,
                                                           const StopToken& stop,
                                                           bench::KvLoad load) {
  FF_CO_TRY(co_await bench::check_kv_empty(engine, INT64_MAX));
  FF_CO_TRY(co_await bench::check_kv_contract(engine, loop, INT64_MAX));
  co_return co_await bench::run_kv_load(engine, loop, stop, load);
}

Result<void> run_bench_kv(Session& session, const BenchKvOptions& options) {
  const bench::KvLoad load{
      .files = options.files, .in_flight = options.in_flight, .existing = options.existing};
  if (load.files == 0) return fail(Errc::usage, "--files must be greater than 0");
  if (load.in_flight == 0 || load.in_flight > kTransactionsInFlightMax) {
    return fail(Errc::usage, "--in-flight {}: 1 to {}", load.in_flight, kTransactionsInFlightMax);
  }
  if (options.engine == "sqlite" && !options.dir) {
    return Error{Errc::usage, "--engine sqlite needs a directory",
                 "Name an empty one with --dir, on the disk that you want to measure."};
  }
  KvOptions store_options;
  store_options.kv = options.engine;
  store_options.dir = options.dir;
  Clock& clock = session.stop.clock();
  FF_TRY(const auto store, KvStore::open(clock, store_options, KvStore::Access::exclusive));
  SystemLoop loop(clock);
  auth::SecureRng rng;
  Metrics metrics;
  const auto engine = store->engine(loop, rng, metrics);
  auto ran = run_task(
      loop, cancel_on_stop(loop, session.stop, measure_kv(*engine, loop, session.stop, load)));
  const bool keep = options.keep && ran;
  if (!keep && (ran || ran.error().code != Errc::exists)) {
    // As long as the fill may take with a slow store.
    const int64_t deadline_ns =
        clock.steady_ns() + 600 * kSecond + static_cast<int64_t>(load.existing) * kMillisecond;
    auto cleared = run_task(loop, bench::clear_kv(*engine, loop, deadline_ns, load));
    if (ran && !cleared) ran = cleared.error();
  }
  FF_TRY(const auto phases, std::move(ran));
  auto table = session.out.table({{"PHASE"},
                                  {"OPERATIONS", Align::right},
                                  {"PER SECOND", Align::right},
                                  {"P50", Align::right},
                                  {"P99", Align::right}});
  Json rows = Json::array();
  const auto time = [](double seconds) {
    return format_duration(static_cast<int64_t>(seconds * 1e9));
  };
  for (const auto& figures : phases) {
    table.row({figures.phase, fmt::to_string(figures.operations),
               fmt::format("{:.0f}", figures.per_second()), time(figures.p50_seconds),
               time(figures.p99_seconds)});
    rows.push_back({{"phase", figures.phase},
                    {"operations", figures.operations},
                    {"seconds", figures.seconds},
                    {"per_second", figures.per_second()},
                    {"p50_seconds", figures.p50_seconds},
                    {"p99_seconds", figures.p99_seconds}});
  }
  session.out.data({{"files", load.files},
                    {"in_flight", load.in_flight},
                    {"existing", load.existing},
                    {"kept", keep},
                    {"conforms", true},
                    {"phases", std::move(rows)}});
  return {};
}

}  // namespace

void declare_bench_kv(Command& kv) {
  auto& options = kv.keep<BenchKvOptions>();
  kv.about(
      "Checks first that a store keeps the rules of transactions that ff relies on, then makes "
      "transactions as the metadata service does: creates of files (2 reads and 4 writes, durable) "
      "and look-ups of random files. Use it to choose a store, and before you use a database that "
      "is compatible with PostgreSQL. The store must be empty, and is empty afterwards; the exit "
      "code is 3 if it breaks a rule.\n\nA store with many files can be slower than an empty one: "
      "--existing first fills it with as many files as your cluster will have. With --keep you can "
      "see how much space these take.");
  kv.option("--engine", text(options.engine, "STORE"),
            "The store, as --kv of ff serve-meta names it: sqlite, in --dir; etcd://...; or "
            "postgres://...");
  kv.option("--dir", dir(options.dir), "Directory of the SQLite file");
  kv.option("--files", number(options.files), "Number of creates, and of look-ups");
  kv.option("--in-flight", number(options.in_flight), "Concurrent transactions");
  kv.option("--existing", number(options.existing),
            "Fill the store with so many files first, 50 in a transaction");
  kv.flag("--keep", options.keep,
          "Leave all files in the store, which is then of no use for a cluster");
  kv.example("ff bench kv --engine postgres://ff@db1,db2/test", "is this database fit for ff?");
  kv.example("ff bench kv --dir /var/tmp/kv --in-flight 16", "SQLite on this disk");
  kv.example("ff bench kv --engine postgres://ff@db1,db2/test --existing 10000000 --keep",
             "with ten million files, and how large the database then is");
  kv.blocking();
  kv.run([&options](Session& s) { return run_bench_kv(s, options); });
}

}  // namespace ff::cmd
