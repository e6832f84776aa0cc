// `ff bench chunk`: what the chunk store costs beside the disk under it.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "bench/chunk_load.h"
#include "cmd/bench.h"
#include "io/files.h"
#include "io/system_disk.h"

namespace ff::cmd {
namespace {

using bench::ChunkFigures;
using bench::ChunkSpeed;

constexpr unsigned kDepthMax = 1024;
constexpr unsigned kRoundsMax = 100;

struct BenchChunkOptions {
  std::string dir = ".";
  uint64_t size = kGiB;
  unsigned depth = 8;
  unsigned small_depth = 64;
  unsigned rounds = 3;
  uint64_t chunks = 1'000'000;
};

Result<void> check(const BenchChunkOptions& options) {
  if (options.size < 64 * kMiB) {
    return fail(Errc::usage, "--size {}: at least 64MiB", format_size(options.size));
  }
  for (const auto& [name, depth] :
       {std::pair("--depth", options.depth), std::pair("--small-depth", options.small_depth)}) {
    if (depth > 0 && depth <= kDepthMax) continue;
    return fail(Errc::usage, "{} {}: 1 to {}", name, depth, kDepthMax);
  }
  if (options.rounds == 0 || options.rounds > kRoundsMax) {
    return fail(Errc::usage, "--rounds {}: 1 to {}", options.rounds, kRoundsMax);
  }
  return {};
}

// A folder of its own under DIR, removed at the end.
class Scratch {
 public:
  static Result<Scratch> make(io::Disk& disk, const std::string& dir, Rng& rng) {
    const std::string path = io::join(dir, "ff-bench-" + rng.hex_id());
    FF_TRY(disk.make_dir(path, 0700));
    return Scratch(disk, path);
  }
  Scratch(Scratch&& other) noexcept
      : disk_(other.disk_), path_(std::exchange(other.path_, std::string())) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (!path_.empty()) (void)io::remove_tree(disk_, path_);
  }
  const std::string& path() const { return path_; }

 private:
  Scratch(io::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  io::Disk& disk_;
  std::string path_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  std::string test;
  uint64_t size = 0;
  unsigned depth = 0;
  double ChunkSpeed::*speed = nullptr;
};

void report(Session& session, const BenchChunkOptions& options,
            const std::vector<ChunkFigures>& rounds,
            const std::optional<bench::OpenFigures>& open) {
  const Row rows[] = {
      {"write", kMiB, options.depth, &ChunkSpeed::write},
      {"read", kMiB, options.depth, &ChunkSpeed::read},
      {"random read", 4 * kKiB, options.small_depth, &ChunkSpeed::small_read},
  };
  Json list = Json::array();
  auto table = session.out.table({{"TEST"},
                                  {"SIZE", Align::right},
                                  {"IN FLIGHT", Align::right},
                                  {"RAW", Align::right},
                                  {"STORE", Align::right},
                                  {"STORE/RAW", Align::right}});
  for (const Row& row : rows) {
    std::vector<double> raw;
    std::vector<double> store;
    std::vector<double> ratio;
    for (const ChunkFigures& round : rounds) {
      raw.push_back(round.raw.*row.speed);
      store.push_back(round.store.*row.speed);
      ratio.push_back(store.back() / raw.back());
    }
    table.row({row.test, format_size(row.size), fmt::to_string(row.depth), format_rate(median(raw)),
               format_rate(median(store)), fmt::format("{:.2f}", median(ratio))});
    list.push_back({{"test", row.test},
                    {"size", row.size},
                    {"in_flight", row.depth},
                    {"raw_bytes_per_second", median(raw)},
                    {"store_bytes_per_second", median(store)},
                    {"ratio", median(ratio)}});
  }
  Json data = {{"dir", options.dir},
               {"bytes", options.size},
               {"rounds", options.rounds},
               {"direct", rounds.front().direct},
               {"rows", std::move(list)}};
  if (open) {
    table.row({fmt::format("open, {} chunks", options.chunks), format_size(open->metadata_bytes),
               "-", "-", fmt::format("{:.2f}s", open->seconds), "-"});
    data["open"] = {{"chunks", options.chunks},
                    {"seconds", open->seconds},
                    {"metadata_bytes", open->metadata_bytes}};
  }
  session.out.data(std::move(data));
}

Result<void> run_chunk(Session& session, const BenchChunkOptions& options) {
  FF_TRY(check(options));
  io::SystemDisk disk;
  SeededRng rng(system_seed());
  Progress progress;
  bench::ChunkLoad load{.dir = {},
                        .bytes = align_down(options.size, kMiB),
                        .depth = options.depth,
                        .small_depth = options.small_depth};
  load.small_reads = load.bytes / kMiB * 32;
  progress.total = options.rounds * 2 * (2 * load.bytes + load.small_reads * 4 * kKiB);
  auto bar = session.out.progress("bench chunk", progress, session.stop);
  std::vector<ChunkFigures> rounds;
  for (unsigned i = 0; i < options.rounds; ++i) {
    FF_TRY(const Scratch scratch, Scratch::make(disk, options.dir, rng));
    load.dir = scratch.path();
    load.store_first = i % 2 == 1;
    FF_TRY(rounds.emplace_back(), bench::run_chunk_load(disk, session.stop, progress, rng, load));
  }
  std::optional<bench::OpenFigures> open;
  if (options.chunks > 0) {
    FF_TRY(const Scratch scratch, Scratch::make(disk, options.dir, rng));
    FF_TRY(open, bench::run_open(disk, session.stop, rng, scratch.path(), options.chunks));
  }
  bar.reset();
  if (!rounds.front().direct) {
    session.out.warn("{} has no direct I/O: memory was measured along with it", options.dir);
  }
  report(session, options, rounds, open);
  return {};
}

}  // namespace

void declare_bench_chunk(Command& chunk) {
  auto& options = chunk.keep<BenchChunkOptions>();
  chunk.about(
      "Writes and reads chunks of 1 MiB in a store under DIR, then 4 KiB anywhere in them, and "
      "does the same with a plain file beside it: the same loop, depth and direct I/O, in newly "
      "reserved space, synced at the end. Prints the medians of some rounds. Then opens a disk "
      "that holds many chunks. What it makes under DIR is removed.");
  chunk.argument("DIR", dir(options.dir), "A directory on that disk").optional();
  chunk.option("--size", size(options.size), "Bytes of the store and of the file");
  chunk.option("--depth", number(options.depth), "Chunks in flight");
  chunk.option("--small-depth", number(options.small_depth), "Small reads in flight");
  chunk.option("--rounds", number(options.rounds), "How often all is measured");
  chunk.option("--chunks", number(options.chunks), "Chunks of the disk that is opened; 0: none");
  chunk.example("ff bench chunk /data", "what a storage daemon can make of the disk at /data");
  chunk.blocking();
  chunk.run([&options](Session& s) { return run_chunk(s, options); });
}

}  // namespace ff::cmd
