// delegations.cc: the cluster, its faults, and the check of all histories at the end.
#include "lab/scenario/delegations.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lab/scenario/delegations_load.h"
#include "lab/scenario/fault_injector.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario {

namespace {

using namespace delegation_parts;
using chain_parts::FaultInjector;
using chain_parts::LoadProgram;
using chain_parts::Program;
using cluster_parts::ClusterSimulation;

constexpr int kHolders = 3;
constexpr int kSharedDirs = 2;
// How long a kill waits for a change, and how long after the change it strikes.
constexpr int64_t kKillNs = 10 * kSecond;
constexpr int64_t kKilledLaterNs = 2 * client::DelegatingMetaClient::kSendNs;
constexpr int64_t kCutOffNs = 2 * meta::kDelegationLeaseNs;
constexpr int64_t kDelegationFaultsNs = 60 * kSecond;
constexpr int64_t kDelegationsHealNs = 240 * kSecond;

using HolderProgram = LoadProgram<DelegationsLoad>;

class DelegationsScenario {
 public:
  explicit DelegationsScenario(uint64_t seed)
      : cluster_(seed, {.chains = 1, .replicas = 1, .files = true}) {
    oracle_.report_violation = [this](std::string what) {
      simulation_.report_violation(std::move(what));
    };
    oracle_.now_ns = [this] { return simulation_.world.now_ns(); };
  }
  Result<ScenarioResult> run();

 private:
  template <class T>
  std::optional<T> wait_for(Task<Result<T>> task, const char* what);
  void prepare();
  void inject_faults();
  void kill(bool keeper);
  void cut_off();
  void check();

  StorageCluster cluster_;
  ClusterSimulation& simulation_ = cluster_.simulation();
  DelegationsOracle oracle_;
  std::vector<std::unique_ptr<HolderProgram>> holders_;
  std::vector<Program*> programs_;
  FaultInjector fault_injector_{simulation_, cluster_.managers(), cluster_.nodes(), programs_};

  // A client without delegations.
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = simulation_.net.transport("examiner");
  rpc::ClientContext context_{
      simulation_.world.loop(), *transport_,     grants_,
      simulation_.metrics,      simulation_.rng, simulation_.identity("examiner")};
  meta::MetaClient examiner_{context_, cluster_parts::manager_addresses()};
  Gate gate_{simulation_.world.loop()};
};

template <class T>
std::optional<T> DelegationsScenario::wait_for(Task<Result<T>> task, const char* what) {
  std::optional<Result<T>> result;
  gate_.spawn([](Task<Result<T>> running, std::optional<Result<T>>& into) -> Task<void> {
    into.emplace(co_await std::move(running));
  }(std::move(task), result));
  cluster_.run_until([&] { return result.has_value(); }, kDelegationsHealNs, what);
  if (result && *result) return std::move(**result);
  if (result) simulation_.report_violation(fmt::format("{}: {}", what, result->error().message));
  return std::nullopt;
}

void DelegationsScenario::prepare() {
  cluster_.set_on_tick([this] { fault_injector_.end_expired(); });
  cluster_.form();
  for (int i = 0; i < kSharedDirs && !simulation_.violation; i++) {
    auto made = wait_for(examiner_.create({}, meta::root(), fmt::format("dir{}", i),
                                          {.kind = meta::InodeType::directory, .mode = 0755}),
                         "a directory cannot be created");
    if (made) oracle_.dirs.push_back(made->inode.id);
  }
  if (simulation_.violation) return;
  for (int i = 0; i < kHolders; i++) {
    holders_.push_back(
        std::make_unique<HolderProgram>(simulation_, i, static_cast<size_t>(i), oracle_));
    programs_.push_back(holders_.back().get());
  }
}

// While a program has changes that no server has applied, if it answers one soon.
void DelegationsScenario::kill(bool keeper) {
  simulation_.faults++;
  DelegationsLoad& load = holders_[simulation_.rng.below(holders_.size())]->load();
  const int64_t until_ns = simulation_.world.now_ns() + kKillNs;
  while (load.pending_changes() == 0 && simulation_.world.now_ns() < until_ns) {
    simulation_.world.run_for(kMillisecond);
  }
  simulation_.world.run_for(simulation_.some_ns(kKilledLaterNs));
  load.kill(keeper);
}

// No server hears a program for so long that its lease ends.
void DelegationsScenario::cut_off() {
  simulation_.faults++;
  const std::string& program = programs_[simulation_.rng.below(programs_.size())]->name();
  for (const auto& manager : cluster_.managers()) {
    simulation_.net.block(program, manager->name());
    simulation_.net.block(manager->name(), program);
  }
  cluster_.run_for(kCutOffNs + simulation_.some_ns(kCutOffNs));
  for (const auto& manager : cluster_.managers()) {
    simulation_.net.unblock(program, manager->name());
    simulation_.net.unblock(manager->name(), program);
  }
}

void DelegationsScenario::inject_faults() {
  const int64_t end_ns = simulation_.world.now_ns() + kDelegationFaultsNs;
  while (simulation_.world.now_ns() < end_ns && !simulation_.violation) {
    cluster_.run_for(simulation_.some_ns(8 * kSecond));
    switch (simulation_.rng.below(8)) {
      case 0: kill(false); break;
      case 1:
      case 2: kill(true); break;
      case 3:
      case 4: cut_off(); break;
      default: fault_injector_.inject();
    }
  }
  fault_injector_.heal();
  for (const auto& holder : holders_) holder->load().stop();
  const auto ended = [&] {
    return std::ranges::all_of(holders_, [](const auto& it) { return it->load().ended(); });
  };
  cluster_.run_until(ended, kDelegationsHealNs,
                     "all faults are healed, but a program's sync does not end");
}

// Reads all names as a client without delegations does, and checks the histories.
void DelegationsScenario::check() {
  for (auto& [name, history] : oracle_.names) {
    const int64_t begin_ns = simulation_.world.now_ns();
    std::optional<Result<meta::InodeView>> found;
    auto looking = examiner_.lookup({}, {.id = name.first}, name.second);
    gate_.spawn([](Task<Result<meta::InodeView>> running,
                   std::optional<Result<meta::InodeView>>& into) -> Task<void> {
      into.emplace(co_await std::move(running));
    }(std::move(looking), found));
    cluster_.run_until([&] { return found.has_value(); }, kDelegationsHealNs,
                       "a name cannot be looked up at the end");
    if (!found || simulation_.violation) return;
    history.add(kHolders, {.begin_ns = begin_ns,
                           .end_ns = simulation_.world.now_ns(),
                           .before = *found ? (*found)->inode.id : NameHistory::kAbsent,
                           .what = "last lookup"});
    const auto contradiction = history.contradiction();
    if (!contradiction) continue;
    simulation_.report_violation(fmt::format("the answers about {}/{} contradict each other:{}",
                                             name.first, name.second, *contradiction));
    return;
  }
  const auto report = wait_for(examiner_.fsck(false, INT64_MAX / 2), "fsck fails");
  for (int i = 0; report && i < report->told_size(); i++) {
    simulation_.report_violation("fsck: " + report->told(i).text());
  }
}

Result<ScenarioResult> DelegationsScenario::run() {
  prepare();
  if (!simulation_.violation) inject_faults();
  if (!simulation_.violation) check();
  if (simulation_.violation) return *simulation_.violation;
  const uint64_t steps = oracle_.calls;
  const uint64_t trace =
      simulation_.net.trace() ^ (steps + oracle_.losses + oracle_.held) * 0x9e3779b97f4a7c15;
  return ScenarioResult{trace, simulation_.world.now_ns(), steps, simulation_.faults,
                        simulation_.net.delivered()};
}

}  // namespace

Result<ScenarioResult> run_delegations(uint64_t seed) {
  DelegationsScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
