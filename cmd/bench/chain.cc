// `ff bench chain`: throughput of the chains of a running cluster, compared with one of its disks.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/disk.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "lab/bench/chain_load.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

struct BenchChainOptions {
  std::optional<std::string> raw;
  std::string meta = kDefaultMeta;
  NetOptions net;
  PassOptions passes;
  uint64_t table = 1;
  std::optional<int64_t> hold_ns;
  bool keep = false;
};

// Removes the written chunks and closes the client at the end, also after an error.
class OpenBenchTarget {
 public:
  OpenBenchTarget(NetClient& client, const std::vector<net::Address>& managers, uint64_t chunks,
                  bool keep)
      : client_(client), chunks_(chunks), keep_(keep), subject_(client.context, managers) {}
  ~OpenBenchTarget() {
    (void)remove();
    run_task(client_.loop, subject_.close());
  }
  OpenBenchTarget(const OpenBenchTarget&) = delete;
  OpenBenchTarget& operator=(const OpenBenchTarget&) = delete;

  bench::ChainBenchTarget& get() { return subject_; }
  void writes() { written_ = true; }
  Result<void> remove() {
    if (!std::exchange(written_, false) || keep_) return {};
    return run_task(client_.loop, subject_.remove(chunks_));
  }

 private:
  NetClient& client_;
  const uint64_t chunks_;
  const bool keep_;
  bool written_ = false;
  bench::ChainBenchTarget subject_;
};

Result<void> run_hold(Session& session, Progress& progress, NetClient& client,
                      OpenBenchTarget& chains, const BenchChainOptions& options,
                      const bench::PassLoad& load, ByteSpan memory) {
  const bench::HoldLoad hold{.duration_ns = *options.hold_ns,
                             .chunks = load.bytes / bench::kChunkBytes,
                             .depth = load.depth};
  chains.writes();
  FF_TRY(const auto figures,
         run_task(client.loop, bench::run_hold(chains.get(), client.context, session.stop, progress,
                                               hold, memory)));
  FF_TRY(chains.remove());
  {
    auto table = session.out.table({{"UPDATES", Align::right},
                                    {"READS", Align::right},
                                    {"ERRORS", Align::right},
                                    {"P50", Align::right},
                                    {"P99", Align::right},
                                    {"LONGEST", Align::right}});
    const auto time = [](double seconds) {
      return format_duration(static_cast<int64_t>(seconds * 1e9));
    };
    table.row({fmt::to_string(figures.updates), fmt::to_string(figures.reads),
               fmt::to_string(figures.errors), time(figures.p50_seconds), time(figures.p99_seconds),
               time(figures.longest_seconds)});
  }
  session.out.data({{"chains", chains.get().chains()},
                    {"replicas", chains.get().replicas()},
                    {"updates", figures.updates},
                    {"reads", figures.reads},
                    {"errors", figures.errors},
                    {"p50_seconds", figures.p50_seconds},
                    {"p99_seconds", figures.p99_seconds},
                    {"longest_seconds", figures.longest_seconds}});
  if (figures.errors == 0) return {};
  return fail(Errc::failed, "{} of {} failed, first: {}", figures.errors,
              figures.updates + figures.reads, figures.first_error);
}

Result<void> run_chain(Session& session, const BenchChainOptions& options) {
  FF_TRY(auto load, pass_load(options.passes));
  load.small_writes = load.small_reads / 2;
  if (options.hold_ns && *options.hold_ns <= 0)
    return fail(Errc::usage, "--hold must be longer than 0");
  FF_TRY(const auto managers, parse_meta(options.meta));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  NetClient client(session.stop, std::move(transport), "bench chain");
  OpenBenchTarget chains(client, managers, load.bytes / bench::kChunkBytes, options.keep);
  FF_TRY(run_task(
      client.loop,
      cancel_on_stop(client.loop, session.stop,
                     chains.get().open(options.table, client.loop.now_ns() + kConnectTimeoutNs))));
  FF_TRY(const ByteSpan memory,
         client.transport.allocate_shared_memory(bench::memory_required(load)));
  Progress progress;
  if (options.hold_ns) {
    auto bar = session.out.progress("bench chain", progress, session.stop);
    return run_hold(session, progress, client, chains, options, load, memory);
  }
  progress.total = options.passes.rounds * (options.raw ? 2 : 1) * bench::bytes_moved(load);
  auto bar = session.out.progress("bench chain", progress, session.stop);
  std::vector<Round> rounds;
  SeededRng rng(system_seed());
  const bench::PassContext on{client.loop, session.stop, progress, rng, load, memory};
  for (unsigned i = 0; i < options.passes.rounds; ++i) {
    chains.writes();
    FF_TRY(rounds.emplace_back(), run_round(session, on, chains.get(), options.raw, i % 2 == 1));
    FF_TRY(chains.remove());
  }
  bar.reset();
  auto table = session.out.table(round_columns("CHAIN"));
  session.out.data({{"chains", chains.get().chains()},
                    {"replicas", chains.get().replicas()},
                    {"bytes", load.bytes},
                    {"rounds", options.passes.rounds},
                    {"rows", report_rounds(table, options.passes, rounds, "CHAIN")}});
  return {};
}

}  // namespace

void declare_bench_chain(Command& chain) {
  auto& options = chain.keep<BenchChainOptions>();
  chain.about(
      "Writes and reads chunks of 1 MiB in the chains of a cluster, then random blocks of 4 KiB, "
      "and overwrites such blocks. A sync of every chain ends the writes, and ff checks each read "
      "with CRC32C. The chunks belong "
      "to a number that no file has, are distributed in turn over the chains of a table, and are "
      "removed at the end. With --raw ff also measures a plain file, in newly allocated space, "
      "with direct I/O. Prints the medians of several rounds; CPU/OP is the CPU time of the whole "
      "machine per operation.");
  declare_meta(chain, options.meta);
  chain.option("--table", number(options.table), "Chain table");
  declare_raw(chain, options.raw);
  declare_passes(chain, options.passes);
  chain.option("--hold", duration(options.hold_ns),
               "Instead, write and read whole chunks for this long, whatever happens to the "
               "cluster, and report errors and the longest wait");
  chain.flag("--keep", options.keep, "Keep the written chunks, for tests of recovery");
  declare_net(chain, options.net);
  chain.example("ff bench chain", "the cluster of this machine");
  chain.example("ff bench chain --raw /disk1", "compare with its disk");
  chain.example("ff bench chain --hold 1m --size 256MiB", "while a node is restarted");
  chain.blocking();
  chain.run([&options](Session& s) { return run_chain(s, options); });
}

}  // namespace ff::cmd
