// names.cc: the cluster, and the power losses of its metadata store.
#include "lab/scenario/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/fault_injector.h"
#include "lab/scenario/names_load.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace names_parts;
using chain_parts::FaultInjector;
using chain_parts::LoadProgram;
using chain_parts::Program;
using chain_parts::program_name;
using cluster_parts::ClusterSimulation;

constexpr int kNamesPrograms = 3;
constexpr int64_t kNamesFaultsNs = 40 * kSecond;
constexpr int64_t kNamesHealNs = 180 * kSecond;

using NamesProgram = LoadProgram<NamesLoad>;

class NamesScenario {
 public:
  explicit NamesScenario(uint64_t seed)
      : cluster_(seed, {.chains = 1, .replicas = 1, .files = true}) {
    oracle_.report_violation = [this](std::string what) {
      simulation_.report_violation(std::move(what));
    };
  }
  Result<ScenarioResult> run();

 private:
  void power_loss();
  void inject_fault();

  StorageCluster cluster_;
  ClusterSimulation& simulation_ = cluster_.simulation();
  NamesOracle oracle_;
  std::vector<std::unique_ptr<NamesProgram>> names_programs_;
  std::vector<Program*> programs_;
  FaultInjector fault_injector_{simulation_, cluster_.managers(), cluster_.nodes(), programs_};
};

// Power loss of the store's machine and of all managers.
void NamesScenario::power_loss() {
  simulation_.faults++;
  for (const auto& manager : cluster_.managers()) {
    if (manager->running()) manager->kill();
  }
  if (simulation_.store.power_loss(simulation_.rng) > 0) oracle_.losses++;
  for (const auto& manager : cluster_.managers()) manager->start();
}

void NamesScenario::inject_fault() {
  const int64_t end_ns = simulation_.world.now_ns() + kNamesFaultsNs;
  while (simulation_.world.now_ns() < end_ns && !simulation_.violation) {
    cluster_.run_for(simulation_.some_ns(3 * kSecond));
    if (simulation_.rng.below(2) == 0) {
      power_loss();
    } else {
      fault_injector_.inject();
    }
  }
  fault_injector_.heal();
  for (const auto& program : names_programs_) program->load().stop();
  const auto ended = [&] {
    return std::ranges::all_of(names_programs_, [](const auto& it) { return it->load().ended(); });
  };
  cluster_.run_until(ended, kNamesHealNs,
                     "all faults are healed, but a program's sync does not end");
}

Result<ScenarioResult> NamesScenario::run() {
  cluster_.set_on_tick([this] { fault_injector_.end_expired(); });
  cluster_.form();
  simulation_.store.enable_async_commit(simulation_.rng);
  for (int i = 0; i < kNamesPrograms; i++) {
    names_programs_.push_back(
        std::make_unique<NamesProgram>(simulation_, i, program_name(i), oracle_));
    programs_.push_back(names_programs_.back().get());
  }
  if (!simulation_.violation) inject_fault();
  if (simulation_.violation) return *simulation_.violation;
  const uint64_t steps = oracle_.changes + oracle_.syncs;
  const uint64_t trace = simulation_.net.trace() ^ (steps + oracle_.told) * 0x9e3779b97f4a7c15;
  return ScenarioResult{trace, simulation_.world.now_ns(), steps, simulation_.faults,
                        simulation_.net.delivered()};
}

}  // namespace

Result<ScenarioResult> run_names(uint64_t seed) {
  NamesScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
