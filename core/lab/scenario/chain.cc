// chain.cc: the storage cluster, its programs and its faults.
#include "lab/scenario/chain.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_parts.h"
#include "lab/scenario/fault_injector.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace chain_parts;

constexpr int64_t kChainFaultsNs = 40 * kSecond;
constexpr int64_t kChainHealNs = 90 * kSecond;
constexpr int64_t kChainCutNs = 120 * kSecond;
constexpr int64_t kStillNs = 40 * kSecond;  // until the manager has removed a target from a chain

constexpr size_t kArena = 256 * kKiB;  // shared memory of a program

using ChainProgram = LoadProgram<ChainLoad>;

class ChainScenario {
 public:
  // In half of the seeds the two chains are on two disks of each node, which has a loop for each.
  explicit ChainScenario(uint64_t seed) : cluster_(seed, {.disks = 1 + seed % 2}) {}

  Result<ScenarioResult> run();

 private:
  void check_verifiers();
  void compare_some();
  void check_differences();
  void check_for_damage();
  bool all_equal();

  StorageCluster cluster_;
  ClusterSimulation& simulation_ = cluster_.simulation();
  History history_{[this](std::string what) { simulation_.report_violation(std::move(what)); },
                   [this] { check_verifiers(); }};
  std::vector<std::unique_ptr<ChainProgram>> chain_programs_;
  std::vector<Program*> programs_;
  FaultInjector fault_injector_{simulation_, cluster_.managers(), cluster_.nodes(), programs_};
};

// A verifier is valid from the moment a replica may answer with it.
void ChainScenario::check_verifiers() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      const chain::Replica* const replica = cluster_.nodes()[target.node - 1]->replica(target.id);
      if (replica == nullptr || !replica->ready() || !replica->is_head()) continue;
      history_.on_serving(id, replica->verifier());
    }
  }
}

// Compares replicas as a scrub does, but more often.
void ChainScenario::compare_some() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      chain::Replica* const replica = cluster_.nodes()[target.node - 1]->replica(target.id);
      if (replica != nullptr && simulation_.rng.below(2) == 0) replica->start_compare();
    }
  }
}

void ChainScenario::check_differences() {
  std::istringstream lines(simulation_.metrics.text());
  for (std::string line; std::getline(lines, line);) {
    const bool differs = line.starts_with("ff_target_differing_total{") && !line.ends_with(" 0");
    if (differs) simulation_.report_violation("replicas differed: " + line);
  }
}

// A target must have recovered all lost blocks before it serves.
void ChainScenario::check_for_damage() {
  for (const auto& node : cluster_.nodes()) node->begin_scrub();
  const auto all = [&] {
    return std::ranges::all_of(cluster_.nodes(),
                               [](const auto& node) { return node->scrubbed().has_value(); });
  };
  cluster_.run_until(all, 30 * kSecond, "the cluster is idle, but a scrub does not end");
  for (const auto& node : cluster_.nodes()) {
    if (node->scrubbed().value_or(0) == 0) continue;
    simulation_.report_violation(node->name() + " serves, but has damaged chunks");
  }
}

bool ChainScenario::all_equal() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    std::optional<std::vector<chunk::ChunkInfo>> first;
    for (const cluster::Target& target : chain.targets) {
      chunk::ChunkStore* const store = cluster_.nodes()[target.node - 1]->store(target.id);
      if (store == nullptr) return false;
      const auto chunks = store->list(target.id, {}, 1000);
      if (!chunks) return false;
      if (!first) first = *chunks;
      if (chunks->size() != first->size()) return false;
      for (size_t i = 0; i < first->size(); i++) {
        const chunk::ChunkInfo& a = (*first)[i];
        const chunk::ChunkInfo& b = (*chunks)[i];
        if (a.id != b.id || a.state != b.state || a.state.pending) return false;
      }
    }
  }
  return true;
}

Result<ScenarioResult> ChainScenario::run() {
  cluster_.set_on_tick([this] {
    fault_injector_.end_expired();
    check_verifiers();
  });
  cluster_.set_on_round([this] { compare_some(); });
  fault_injector_.set_routing([this]() -> const cluster::Routing& { return cluster_.routing(); });
  cluster_.form();
  for (int i = 0; i < kPrograms; i++) {
    const std::string name = program_name(i);
    const ByteSpan arena =
        name == kSharing ? simulation_.net.share_memory(name, kShared, kArena) : ByteSpan();
    const auto report = [this](std::string what) { simulation_.report_violation(std::move(what)); };
    chain_programs_.push_back(
        std::make_unique<ChainProgram>(simulation_, i, history_, report, arena));
    programs_.push_back(chain_programs_.back().get());
  }
  const int64_t end_ns = simulation_.world.now_ns() + kChainFaultsNs;
  while (simulation_.world.now_ns() < end_ns && !simulation_.violation) {
    cluster_.run_for(simulation_.some_ns(3 * kSecond));
    fault_injector_.inject();
  }
  fault_injector_.heal();
  const auto all_serve = [this] { return cluster_.all_serve(); };
  cluster_.run_until(all_serve, kChainHealNs, "all faults are healed, but not every target serves");
  // Every chain has enough targets without one of the two nodes.
  fault_injector_.partition_two(kChainCutNs);
  cluster_.run_for(5 * kSecond);
  for (const auto& program : chain_programs_) program->load().stop_writing();
  const auto quiet = [&] {
    return std::ranges::none_of(chain_programs_,
                                [](const auto& it) { return it->load().writes_under_way(); });
  };
  cluster_.run_until(quiet, kStillNs, "two nodes are partitioned, and a chain makes no progress");
  fault_injector_.end_all();
  cluster_.run_until([&] { return all_serve() && all_equal(); }, kChainHealNs,
                     "the cluster is idle, but the replicas of a chain differ");
  check_for_damage();
  cluster_.run_for(5 * kSecond);  // of reads
  check_differences();
  if (simulation_.violation) return *simulation_.violation;
  const uint64_t trace =
      simulation_.net.trace() ^ (history_.updates() + history_.reads()) * 0x9e3779b97f4a7c15;
  return ScenarioResult{trace, simulation_.world.now_ns(), history_.updates() + history_.reads(),
                        simulation_.faults, simulation_.net.delivered()};
}

}  // namespace

Result<ScenarioResult> run_chain(uint64_t seed) {
  ChainScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
