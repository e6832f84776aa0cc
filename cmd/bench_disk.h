// What `ff bench chunk` and `ff bench chain` share: their options, a folder of their own, and how
// the rounds of disk_passes.h are printed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "bench/disk_passes.h"
#include "cmd/cli.h"
#include "io/disk.h"

namespace ff::cmd {

struct PassOptions {
  uint64_t size = kGiB;
  unsigned depth = 8;
  unsigned small_depth = 64;
  unsigned rounds = 3;
};
void declare_passes(Command& command, PassOptions& options);
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

// One of the rounds. `raw` is all 0 where there was none.
struct Round {
  bench::Speed raw;
  bench::Speed own;
};
// Prints the medians; the rows for --json. `own`: what was measured, "STORE".
Json report_rounds(Table& table, const PassOptions& options, const std::vector<Round>& rounds,
                   const std::string& own);
std::vector<Column> columns_of_rounds(const std::string& own);

}  // namespace ff::cmd
