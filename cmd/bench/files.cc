// `ff bench files`: creates, stats, renames, writes, reads and removes small files in directories
// of any file systems, in turn, so that they can be compared.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cmd/bench/bench.h"
#include "cmd/bench/disk.h"
#include "lab/bench/files_load.h"
#include "platform/base/median.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr unsigned kFilesRoundsMax = 100;

struct BenchFilesOptions {
  std::vector<std::string> dirs;
  bench::SmallFilesLoad load;
  unsigned rounds = 3;
};

Result<void> check_files(const BenchFilesOptions& options) {
  const bench::SmallFilesLoad& load = options.load;
  if (load.processes == 0 || load.processes > bench::kFilesProcessesMax) {
    return fail(Errc::usage, "--processes {}: 1 to {}", load.processes, bench::kFilesProcessesMax);
  }
  if (load.files == 0 || load.files > bench::kFilesMax / load.processes) {
    return fail(Errc::usage, "--files {}: 1 to {} with {} processes", load.files,
                bench::kFilesMax / load.processes, load.processes);
  }
  if (load.bytes > bench::kFileBytesMax) {
    return fail(Errc::usage, "--size {}: at most {}", format_size(load.bytes),
                format_size(bench::kFileBytesMax));
  }
  if (options.rounds == 0 || options.rounds > kFilesRoundsMax) {
    return fail(Errc::usage, "--rounds {}: 1 to {}", options.rounds, kFilesRoundsMax);
  }
  return {};
}

// The phases of all rounds, for each directory.
using FilesRounds = std::map<std::string, std::vector<std::vector<bench::FilesPhase>>>;

double median_of(const std::vector<std::vector<bench::FilesPhase>>& rounds, size_t phase,
                 double (*figure)(const bench::FilesPhase&)) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const auto& round : rounds) values.push_back(figure(round[phase]));
  return median(std::move(values));
}

Json report_files(Table& table, const std::vector<std::string>& dirs, FilesRounds& rounds) {
  Json rows = Json::array();
  const auto time = [](double seconds) {
    return format_duration(static_cast<int64_t>(seconds * 1e9));
  };
  const size_t phases = rounds[dirs.front()].front().size();
  for (size_t i = 0; i < phases; i++) {
    for (const std::string& dir : dirs) {
      const auto& of_dir = rounds[dir];
      const auto figure = [&](double (*of)(const bench::FilesPhase&)) {
        return median_of(of_dir, i, of);
      };
      const double rate = figure([](const bench::FilesPhase& one) { return one.per_second(); });
      const double p50 = figure([](const bench::FilesPhase& one) { return one.p50_seconds; });
      const double p99 = figure([](const bench::FilesPhase& one) { return one.p99_seconds; });
      const double cpu = figure([](const bench::FilesPhase& one) { return one.cpu_seconds; });
      const std::string& name = of_dir.front()[i].name;
      table.row({name, dir, fmt::format("{:.0f}", rate), time(p50), time(p99), time(cpu)});
      rows.push_back({{"phase", name},
                      {"dir", dir},
                      {"operations", of_dir.front()[i].operations},
                      {"per_second", rate},
                      {"p50_seconds", p50},
                      {"p99_seconds", p99},
                      {"cpu_seconds_per_operation", cpu}});
    }
  }
  return rows;
}

Result<void> run_bench_files(Session& session, const BenchFilesOptions& options) {
  FF_TRY(check_files(options));
  io::SystemDisk disk;
  SeededRng rng(system_seed());
  Progress progress;
  progress.total = options.rounds * options.dirs.size() * bench::files_operations(options.load);
  auto bar = session.out.progress("bench files", progress, session.stop);
  FilesRounds rounds;
  for (unsigned i = 0; i < options.rounds; i++) {
    // Every second round in the opposite order, as a machine may be slower later.
    std::vector<std::string> order = options.dirs;
    if (i % 2 == 1) std::ranges::reverse(order);
    for (const std::string& dir : order) {
      FF_TRY(const auto scratch, ScratchDir::make(disk, dir, rng));
      FF_TRY(auto phases,
             bench::run_files_load(session.stop, progress, scratch.path(), options.load));
      rounds[dir].push_back(std::move(phases));
    }
  }
  bar.reset();
  auto table = session.out.table({{"PHASE"},
                                  {"DIRECTORY"},
                                  {"PER SECOND", Align::right},
                                  {"P50", Align::right},
                                  {"P99", Align::right},
                                  {"CPU/OP", Align::right}});
  session.out.data({{"processes", options.load.processes},
                    {"files", options.load.files},
                    {"bytes", options.load.bytes},
                    {"own_directories", options.load.own_directories},
                    {"rounds", options.rounds},
                    {"rows", report_files(table, options.dirs, rounds)}});
  return {};
}

}  // namespace

void declare_bench_files(Command& files) {
  auto& options = files.keep<BenchFilesOptions>();
  files.about(
      "Measures small files in directories of any file systems, as mdtest does: N processes create "
      "empty files, stat, rename and remove them, then write new files of one size, read (open, "
      "read, close) and remove them. All processes end a phase before the next begins. With "
      "several directories, ff measures each in turn, round by round. Prints the medians of the "
      "rounds: operations per second of all processes, the time of one operation, and the CPU "
      "time of the whole machine per operation. ff removes its files at the end, also after an "
      "error.");
  files.argument("DIR", dir(options.dirs), "Directories to measure").required();
  files.option("--processes", number(options.load.processes), "Processes that work at once");
  files.option("--files", number(options.load.files), "Files of each process");
  files.option("--size", size(options.load.bytes), "Bytes of each file that is written");
  files.flag("--own-directories", options.load.own_directories,
             "Give each process a directory of its own; without it, all work in one");
  files.option("--rounds", number(options.rounds), "Number of rounds");
  files.example("ff bench files /mnt/ff", "a mount");
  files.example("ff bench files --processes 8 /mnt/ff /mnt/mfs /data",
                "compare it with another mount and the disk");
  files.blocking();
  files.run([&options](Session& s) { return run_bench_files(s, options); });
}

}  // namespace ff::cmd
