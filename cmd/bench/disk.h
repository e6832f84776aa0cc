// What those of `ff bench` share that move chunks: their options, a folder of their own, the rounds
// of disk_passes.h, and how they are printed.
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
// Errc::usage.
Result<bench::PassLoad> load_of(const PassOptions& options);

// A folder of its own under DIR, removed at the end.
class Scratch {
 public:
  static Result<Scratch> make(io::Disk& disk, const std::string& dir, Rng& rng);
  Scratch(Scratch&& other) noexcept
      : disk_(other.disk_), path_(std::exchange(other.path_, std::string())) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();
  const std::string& path() const { return path_; }

 private:
  Scratch(io::Disk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  io::Disk& disk_;
  std::string path_;
};

// A file for the passes on the disk of a folder, removed at the end.
class RawBeside {
 public:
  static Result<RawBeside> make(Session& session, Loop& loop, const std::string& dir,
                                const bench::PassLoad& load, Rng& rng);
  bench::RawFile& file() { return *file_; }

 private:
  RawBeside(std::unique_ptr<io::SystemDisk> disk, Scratch scratch)
      : disk_(std::move(disk)), scratch_(std::move(scratch)) {}
  std::unique_ptr<io::SystemDisk> disk_;
  Scratch scratch_;
  std::unique_ptr<bench::RawFile> file_;
};

// One of the rounds. `raw` is all 0 where there was none.
struct Round {
  bench::Throughput raw;
  bench::Throughput own;
};
// All passes of `own`, and of a file in the folder `raw` in turns with it, if there is one.
Result<Round> run_round(Session& session, const bench::PassContext& on, bench::BenchTarget& own,
                        const std::optional<std::string>& raw, bool own_first);
// Prints the medians; the rows for --json. `own`: what was measured, "STORE".
Json report_rounds(Table& table, const PassOptions& options, const std::vector<Round>& rounds,
                   const std::string& own);
std::vector<Column> columns_of_rounds(const std::string& own);

}  // namespace ff::cmd
