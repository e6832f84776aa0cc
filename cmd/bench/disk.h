// Common part of the benchmarks of chunks: options, scratch directory, the rounds of
// disk_passes.h, and their table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/cli.h"
#include "lab/bench/disk_passes.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {

struct PassOptions {
  uint64_t size = kGiB;
  unsigned depth = 8;
  unsigned small_depth = 64;
  unsigned rounds = 3;
};
void declare_passes(Command& command, PassOptions& options);
void declare_raw(Command& command, std::optional<std::string>& raw);
// Errc::usage: values out of range.
Result<bench::PassLoad> pass_load(const PassOptions& options);

// A new directory under `dir`, removed at the end.
class ScratchDir {
 public:
  static Result<ScratchDir> make(io::Disk& disk, const std::string& dir, Rng& rng);
  ScratchDir(ScratchDir&& other) noexcept
      : disk_(other.disk_), path_(std::exchange(other.path_, std::string())) {}
  ScratchDir& operator=(ScratchDir&&) = delete;
  ~ScratchDir();
  const std::string& path() const { return path_; }

 private:
  ScratchDir(io::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  io::Disk& disk_;
  std::string path_;
};

// A plain file in `dir` for comparison, removed at the end.
class RawBaseline {
 public:
  static Result<RawBaseline> make(Session& session, Loop& loop, const std::string& dir,
                                  const bench::PassLoad& load, Rng& rng);
  bench::RawFile& file() { return *file_; }

 private:
  RawBaseline(std::unique_ptr<io::SystemDisk> disk, ScratchDir scratch)
      : disk_(std::move(disk)), scratch_(std::move(scratch)) {}
  std::unique_ptr<io::SystemDisk> disk_;
  ScratchDir scratch_;
  std::unique_ptr<bench::RawFile> file_;
};

// The results of one round; `raw` is 0 without a comparison.
struct Round {
  bench::Throughput raw;
  bench::Throughput own;
};
// Runs all passes on `own`, alternating with a plain file in the directory `raw` if that is given.
Result<Round> run_round(Session& session, const bench::PassContext& on, bench::BenchTarget& own,
                        const std::optional<std::string>& raw, bool own_first);
// Prints the medians and returns the rows for --json. `own`: title of the measured target, "STORE".
Json report_rounds(Table& table, const PassOptions& options, const std::vector<Round>& rounds,
                   const std::string& own);
std::vector<Column> round_columns(const std::string& own);

}  // namespace ff::cmd
