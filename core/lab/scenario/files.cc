// files.cc: the cluster with its file system, and its faults.
#include "lab/scenario/files.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/fault_injector.h"
#include "lab/scenario/files_load.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace files_parts;
using chain_parts::FaultInjector;
using chain_parts::LoadProgram;
using chain_parts::Program;
using cluster_parts::ClusterSimulation;

constexpr int kFilePrograms = 3;
constexpr int64_t kFilesFaultsNs = 25 * kSecond;
constexpr int64_t kFilesCutNs = chain::kRetryTimeoutNs + 20 * kSecond;
constexpr int64_t kFilesHealNs = 90 * kSecond;
constexpr int64_t kCollectNs = 120 * kSecond;

using FilesProgram = LoadProgram<FilesLoad>;

class FilesScenario {
 public:
  explicit FilesScenario(uint64_t seed)
      : cluster_(seed, {.chains = 3, .replicas = 2, .files = true}) {
    oracle_.now_ns = [this] { return simulation_.world.now_ns(); };
    oracle_.report_violation = [this](std::string what) {
      simulation_.report_violation(std::move(what));
    };
  }
  Result<ScenarioResult> run();

 private:
  // Runs a task of the operator to its end.
  template <class T>
  Result<T> wait_for(Task<Result<T>> task, std::string_view what);
  void prepare();
  void inject_fault();
  void check_answers();
  void check_fsck();
  Task<Result<uint64_t>> run_fsck();

  StorageCluster cluster_;
  ClusterSimulation& simulation_ = cluster_.simulation();
  FilesOracle oracle_;
  std::vector<std::unique_ptr<FilesProgram>> file_programs_;
  std::vector<Program*> programs_;
  FaultInjector fault_injector_{simulation_, cluster_.managers(), cluster_.nodes(), programs_};

  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = simulation_.net.transport("examiner");
  rpc::ClientContext context_{
      simulation_.world.loop(), *transport_,     grants_,
      simulation_.metrics,      simulation_.rng, simulation_.identity("examiner")};
  client::FileSystem files_{context_, cluster_parts::manager_addresses(), {.arena = {}}};
  Gate gate_{simulation_.world.loop()};
};

template <class T>
Task<void> keep(Task<Result<T>> task, std::optional<Result<T>>& into) {
  into.emplace(co_await std::move(task));
}

template <class T>
Result<T> FilesScenario::wait_for(Task<Result<T>> task, std::string_view what) {
  std::optional<Result<T>> result;
  gate_.spawn(keep(std::move(task), result));
  cluster_.run_until([&] { return result.has_value(); }, kFilesHealNs, what);
  if (!result) return fail(Errc::failed, "{}", what);
  if (!*result) simulation_.report_violation(fmt::format("{}: {}", what, result->error().message));
  return std::move(*result);
}

void FilesScenario::prepare() {
  cluster_.set_on_tick([this] { fault_injector_.end_expired(); });
  fault_injector_.set_routing([this]() -> const cluster::Routing& { return cluster_.routing(); });
  cluster_.form();
  if (simulation_.violation) return;
  if (!wait_for(make_dirs(files_, oracle_, ""), "directories cannot be created")) return;
  for (int i = 0; i < kFilePrograms; i++) {
    file_programs_.push_back(std::make_unique<FilesProgram>(simulation_, i, oracle_));
    programs_.push_back(file_programs_.back().get());
  }
}

void FilesScenario::inject_fault() {
  int64_t end_ns = simulation_.world.now_ns() + kFilesFaultsNs;
  // Rarely, since it takes long: writes fail only after a minute without storage.
  if (simulation_.rng.below(4) == 0) {
    fault_injector_.isolate(*programs_.back(), kFilesCutNs);
    end_ns += kFilesCutNs;
  }
  while (simulation_.world.now_ns() < end_ns && !simulation_.violation) {
    cluster_.run_for(simulation_.some_ns(3 * kSecond));
    fault_injector_.inject();
  }
  fault_injector_.heal();
  cluster_.run_until([this] { return cluster_.all_serve(); }, kFilesHealNs,
                     "all faults are healed, but not every target serves");
  for (const auto& program : file_programs_) program->load().stop();
  const auto quiet = [&] {
    return std::ranges::none_of(file_programs_, [](const auto& it) { return it->load().busy(); });
  };
  cluster_.run_until(quiet, 2 * chain::kRetryTimeoutNs,
                     "all faults are healed, but a program's call does not end");
}

void FilesScenario::check_answers() {
  const auto log = wait_for(read_log(files_, oracle_), "the log cannot be read");
  if (!log) return;
  if (const auto wrong = contradiction(oracle_, *log)) simulation_.report_violation(*wrong);
}

// Returns the number of files that are still to be collected, closed or truncated.
Task<Result<uint64_t>> FilesScenario::run_fsck() {
  FF_CO_TRY(const auto reply, co_await files_.metadata().fsck(false, INT64_MAX / 2));
  for (const auto& problem : reply.told()) {
    // A late write may have reached a file whose creation was abandoned.
    if (problem.kind() != "orphan-chunks") simulation_.report_violation("fsck: " + problem.text());
  }
  co_return reply.garbage();
}

void FilesScenario::check_fsck() {
  const int64_t end_ns = simulation_.world.now_ns() + kCollectNs;
  for (;;) {
    const auto left = wait_for(run_fsck(), "fsck does not end");
    if (simulation_.violation || !left || *left == 0) return;
    if (simulation_.world.now_ns() >= end_ns) {
      return simulation_.report_violation(
          fmt::format("{} files were not garbage-collected", *left));
    }
    cluster_.run_for(5 * kSecond);
  }
}

Result<ScenarioResult> FilesScenario::run() {
  prepare();
  if (!simulation_.violation) inject_fault();
  if (!simulation_.violation) check_answers();
  if (!simulation_.violation) check_fsck();
  if (simulation_.violation) return *simulation_.violation;
  const uint64_t trace =
      simulation_.net.trace() ^ (oracle_.changes + oracle_.reads) * 0x9e3779b97f4a7c15;
  return ScenarioResult{trace, simulation_.world.now_ns(), oracle_.changes + oracle_.reads,
                        simulation_.faults, simulation_.net.delivered()};
}

}  // namespace

Result<ScenarioResult> run_files(uint64_t seed) {
  FilesScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
