// disk.cc: runs rounds of the passes and prints their medians.
#include "cmd/bench/disk.h"

#include <algorithm>

#include "platform/base/median.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::cmd {

namespace {

constexpr unsigned kDiskDepthMax = 1024;
constexpr unsigned kRoundsMax = 100;
constexpr uint64_t kSmallReadsOfChunk = 32;

}  // namespace

void declare_passes(Command& command, PassOptions& options) {
  command.option("--size", size(options.size), "Bytes to write, in chunks of 1MiB")
      .section(kCommonOptions);
  command.option("--depth", number(options.depth), "Chunks in flight").section(kCommonOptions);
  command.option("--small-depth", number(options.small_depth), "Small reads or writes in flight")
      .section(kCommonOptions);
  command.option("--rounds", number(options.rounds), "Number of rounds").section(kCommonOptions);
}

void declare_raw(Command& command, std::optional<std::string>& raw) {
  command
      .option("--raw", dir(raw),
              "Also measure a plain file in this directory, in the same way, for comparison")
      .section(kCommonOptions);
}

Result<bench::PassLoad> pass_load(const PassOptions& options) {
  if (options.size < 64 * kMiB) {
    return fail(Errc::usage, "--size {}: at least 64MiB", format_size(options.size));
  }
  for (const auto& [name, depth] :
       {std::pair("--depth", options.depth), std::pair("--small-depth", options.small_depth)}) {
    if (depth > 0 && depth <= kDiskDepthMax) continue;
    return fail(Errc::usage, "{} {}: 1 to {}", name, depth, kDiskDepthMax);
  }
  if (options.rounds == 0 || options.rounds > kRoundsMax) {
    return fail(Errc::usage, "--rounds {}: 1 to {}", options.rounds, kRoundsMax);
  }
  const uint64_t chunks = options.size / bench::kChunkBytes;
  return bench::PassLoad{.bytes = chunks * bench::kChunkBytes,
                         .depth = options.depth,
                         .small_depth = options.small_depth,
                         .small_reads = chunks * kSmallReadsOfChunk};
}

Result<ScratchDir> ScratchDir::make(io::Disk& disk, const std::string& dir, Rng& rng) {
  const std::string path = io::join(dir, "ff-bench-" + rng.hex_id());
  FF_TRY(disk.make_dir(path, 0700));
  return ScratchDir(disk, path);
}

ScratchDir::~ScratchDir() {
  if (!path_.empty()) (void)io::remove_tree(disk_, path_);
}

Result<RawBaseline> RawBaseline::make(Session& session, Loop& loop, const std::string& dir,
                                      const bench::PassLoad& load, Rng& rng) {
  auto disk = std::make_unique<io::SystemDisk>();
  FF_TRY(auto scratch, ScratchDir::make(*disk, dir, rng));
  RawBaseline baseline(std::move(disk), std::move(scratch));
  const std::string path = io::join(baseline.scratch_.path(), "raw");
  FF_TRY(baseline.file_, bench::RawFile::make(*baseline.disk_, loop, path, load));
  if (!baseline.file_->direct()) {
    session.out.warn("{} has no direct I/O: the result includes memory speed", dir);
  }
  return baseline;
}

Result<Round> run_round(Session& session, const bench::PassContext& on, bench::BenchTarget& own,
                        const std::optional<std::string>& raw, bool own_first) {
  Round round;
  const bench::MeasuredTarget of_own{own, round.own};
  if (!raw) {
    FF_TRY(bench::run_passes(on, of_own, nullptr));
    return round;
  }
  FF_TRY(auto baseline, RawBaseline::make(session, on.loop, *raw, on.load, on.rng));
  const bench::MeasuredTarget of_raw{baseline.file(), round.raw};
  FF_TRY(own_first ? bench::run_passes(on, of_own, &of_raw)
                   : bench::run_passes(on, of_raw, &of_own));
  return round;
}

std::vector<Column> round_columns(const std::string& own) {
  return {{"TEST"},
          {"SIZE", Align::right},
          {"IN FLIGHT", Align::right},
          {"RAW", Align::right},
          {own, Align::right},
          {own + "/RAW", Align::right},
          {"CPU/OP", Align::right}};
}

Json report_rounds(Table& table, const PassOptions& options, const std::vector<Round>& rounds,
                   const std::string& own) {
  struct Row {
    std::string test;
    uint64_t size = 0;
    unsigned depth = 0;
    bench::PassResult bench::Throughput::*pass = nullptr;
  };
  const Row rows[] = {
      {"write", bench::kChunkBytes, options.depth, &bench::Throughput::write},
      {"read", bench::kChunkBytes, options.depth, &bench::Throughput::read},
      {"random read", bench::kSmallBytes, options.small_depth, &bench::Throughput::small_read},
      {"batched read", bench::kSmallBytes, options.small_depth, &bench::Throughput::batched_read},
      {"random write", bench::kSmallBytes, options.small_depth, &bench::Throughput::small_write},
  };
  std::string key = own;
  std::ranges::transform(key, key.begin(), [](unsigned char c) { return std::tolower(c); });
  Json list = Json::array();
  for (const Row& row : rows) {
    std::vector<double> raw;
    std::vector<double> measured;
    std::vector<double> ratio;
    std::vector<double> cpu;
    for (const Round& round : rounds) {
      raw.push_back((round.raw.*row.pass).speed);
      measured.push_back((round.own.*row.pass).speed);
      cpu.push_back((round.own.*row.pass).cpu_seconds);
      if (raw.back() > 0) ratio.push_back(measured.back() / raw.back());
    }
    if (median(measured) == 0) continue;  // the benchmark has no such pass
    const bool has_raw = !ratio.empty();
    table.row({row.test, format_size(row.size), fmt::to_string(row.depth),
               has_raw ? format_rate(median(raw)) : "-", format_rate(median(measured)),
               has_raw ? fmt::format("{:.2f}", median(ratio)) : "-",
               format_duration(static_cast<int64_t>(median(cpu) * 1e9))});
    Json json = {{"test", row.test},
                 {"size", row.size},
                 {"in_flight", row.depth},
                 {key + "_bytes_per_second", median(measured)},
                 {key + "_cpu_seconds_per_operation", median(cpu)}};
    if (has_raw) json["raw_bytes_per_second"] = median(raw);
    if (has_raw) json["ratio"] = median(ratio);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace ff::cmd
