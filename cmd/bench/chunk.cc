// `ff bench chunk`: throughput of the chunk store, compared with the disk under it.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/disk.h"
#include "lab/bench/chunk_load.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

struct BenchChunkOptions {
  std::string dir = ".";
  PassOptions passes;
  uint64_t chunks = 1'000'000;
};

void report_chunk_rounds(Session& session, const BenchChunkOptions& options,
                         const std::vector<Round>& rounds, bool direct,
                         const std::optional<bench::OpenResult>& open) {
  auto table = session.out.table(round_columns("STORE"));
  Json data = {{"dir", options.dir},
               {"bytes", options.passes.size},
               {"rounds", options.passes.rounds},
               {"direct", direct},
               {"rows", report_rounds(table, options.passes, rounds, "STORE")}};
  if (open) {
    table.row({fmt::format("open, {} chunks", options.chunks), format_size(open->metadata_bytes),
               "-", "-", fmt::format("{:.2f}s", open->seconds), "-", "-"});
    data["open"] = {{"chunks", options.chunks},
                    {"seconds", open->seconds},
                    {"metadata_bytes", open->metadata_bytes},
                    {"memory_bytes", open->memory_bytes}};
  }
  session.out.data(std::move(data));
}

Result<void> run_chunk(Session& session, const BenchChunkOptions& options) {
  FF_TRY(auto passes, pass_load(options.passes));
  passes.small_writes = passes.small_reads / 2;
  io::SystemDisk disk;
  SeededRng rng(system_seed());
  Progress progress;
  progress.total = options.passes.rounds * 2 * bench::bytes_moved(passes);
  auto bar = session.out.progress("bench chunk", progress, session.stop);
  std::vector<Round> rounds;
  bool direct = true;
  for (unsigned i = 0; i < options.passes.rounds; ++i) {
    FF_TRY(const ScratchDir scratch, ScratchDir::make(disk, options.dir, rng));
    const bench::ChunkLoad load{.dir = scratch.path(), .passes = passes, .store_first = i % 2 == 1};
    FF_TRY(const auto figures, bench::run_chunk_load(disk, session.stop, progress, rng, load));
    rounds.push_back({.raw = figures.raw, .own = figures.store});
    direct = figures.direct;
  }
  std::optional<bench::OpenResult> open;
  if (options.chunks > 0) {
    FF_TRY(const ScratchDir scratch, ScratchDir::make(disk, options.dir, rng));
    FF_TRY(open, bench::measure_open(disk, session.stop, rng, scratch.path(), options.chunks));
  }
  bar.reset();
  if (!direct) {
    session.out.warn("{} has no direct I/O: the result includes memory speed", options.dir);
  }
  report_chunk_rounds(session, options, rounds, direct, open);
  return {};
}

}  // namespace

void declare_bench_chunk(Command& chunk) {
  auto& options = chunk.keep<BenchChunkOptions>();
  chunk.about(
      "Writes and reads chunks of 1 MiB in a store under DIR, then random blocks of 4 KiB, and "
      "overwrites such blocks. Does the same with a plain file: the same loop, depth and direct "
      "I/O, in newly allocated space, with a sync at the end of writes. Prints the medians of "
      "several rounds; CPU/OP is the CPU time of the whole machine per operation. Then it opens a "
      "disk that holds many chunks. ff removes the files it creates under DIR.");
  chunk.argument("DIR", dir(options.dir), "Directory on the disk").optional();
  declare_passes(chunk, options.passes);
  chunk.option("--chunks", number(options.chunks),
               "Number of chunks on the disk that is opened; 0 skips this test");
  chunk.example("ff bench chunk /data", "what a storage daemon can achieve on the disk at /data");
  chunk.blocking();
  chunk.run([&options](Session& s) { return run_chunk(s, options); });
}

}  // namespace ff::cmd
