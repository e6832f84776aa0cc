// `ff bench io`: throughput of a file in a cluster, compared with one of its disks.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/disk.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/options/acting_user.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "lab/bench/file_bench_target.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr unsigned kBatchMax = 1024;

struct BenchIoOptions {
  std::optional<std::string> raw;
  std::string meta = kDefaultMeta;
  NetOptions net;
  PassOptions passes;
  unsigned batch = 16;
};

// Each round uses a new file, removed at the end, also after an error.
Result<std::vector<Round>> run_rounds(Session& session, NetClient& client,
                                      client::FileSystem& files, const BenchIoOptions& options,
                                      const bench::PassLoad& load, ByteSpan memory) {
  Progress progress;
  progress.total = options.passes.rounds * (options.raw ? 2 : 1) * bench::bytes_moved(load);
  auto bar = session.out.progress("bench io", progress, session.stop);
  std::vector<Round> rounds;
  const meta::Caller caller = process_caller();
  SeededRng rng(system_seed());
  const bench::PassContext on{client.loop, session.stop, progress, rng, load, memory};
  for (unsigned i = 0; i < options.passes.rounds; ++i) {
    bench::FileBenchTarget file(files, caller, "ff-bench-" + client.rng.hex_id());
    FF_TRY(run_task(client.loop, cancel_on_stop(client.loop, session.stop, file.make())));
    auto round = run_round(session, on, file, options.raw, i % 2 == 1);
    auto removed = run_task(client.loop, file.remove());
    FF_TRY(rounds.emplace_back(), std::move(round));
    FF_TRY(std::move(removed));
  }
  return rounds;
}

Result<void> run_io(Session& session, const BenchIoOptions& options) {
  FF_TRY(auto load, pass_load(options.passes));
  if (options.batch == 0 || options.batch > kBatchMax) {
    return fail(Errc::usage, "--batch {}: 1 to {}", options.batch, kBatchMax);
  }
  load.batch = options.batch;
  FF_TRY(const auto servers, parse_meta(options.meta));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  NetClient client(session.stop, std::move(transport), "bench io");
  FF_TRY(const ByteSpan memory,
         client.transport.allocate_shared_memory(bench::memory_required(load)));
  client::FileSystem files(client.context, servers, {.arena = {}});
  auto started =
      run_task(client.loop, cancel_on_stop(client.loop, session.stop,
                                           files.start(client.loop.now_ns() + kConnectTimeoutNs)));
  auto rounds = started ? run_rounds(session, client, files, options, load, memory)
                        : Result<std::vector<Round>>(std::move(started).error());
  run_task(client.loop, files.close());
  FF_TRY(const auto measured, std::move(rounds));
  auto table = session.out.table(round_columns("FILE"));
  session.out.data({{"bytes", load.bytes},
                    {"batch", load.batch},
                    {"rounds", options.passes.rounds},
                    {"rows", report_rounds(table, options.passes, measured, "FILE")}});
  return {};
}

}  // namespace

void declare_bench_io(Command& io) {
  auto& options = io.keep<BenchIoOptions>();
  io.about(
      "Writes a file in the root directory of a cluster sequentially and syncs it, reads it, then "
      "reads random blocks of 4 KiB, one by one and in batches. ff checks each read with CRC32C. "
      "The file has the layout of new files there, and is removed at the end. With --raw ff also "
      "measures a plain file, in newly allocated space, with direct I/O. Prints the medians of "
      "several rounds; CPU/OP is the CPU time of the whole machine per operation.");
  declare_meta(io, options.meta);
  declare_raw(io, options.raw);
  declare_passes(io, options.passes);
  io.option("--batch", number(options.batch), "Number of small reads per batch");
  declare_net(io, options.net);
  io.example("ff bench io", "the cluster of this machine");
  io.example("ff bench io --raw /disk1", "compare with its disk");
  io.blocking();
  io.run([&options](Session& s) { return run_io(s, options); });
}

}  // namespace ff::cmd
