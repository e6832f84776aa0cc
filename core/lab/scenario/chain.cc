// chain.cc: the cluster with its data, and what befalls it.
#include "lab/scenario/chain.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_parts.h"
#include "lab/scenario/chain_trouble.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace chain_parts;

constexpr int64_t kChainTroubleNs = 40 * kSecond;
constexpr int64_t kChainHealNs = 90 * kSecond;
constexpr int64_t kChainCutNs = 120 * kSecond;
constexpr int64_t kStillNs = 40 * kSecond;  // until the manager has taken a target out

class ChainStory {
 public:
  explicit ChainStory(uint64_t seed) : cluster_(seed, {}) {}

  Result<Outcome> run();

 private:
  void look_at_verifiers();
  void compare_some();
  void check_differences();
  void look_for_damage();
  bool all_equal();

  StorageCluster cluster_;
  ClusterStage& stage_ = cluster_.stage();
  History history_{[this](std::string what) { stage_.broken(std::move(what)); },
                   [this] { look_at_verifiers(); }};
  std::vector<std::unique_ptr<ChainProgram>> chain_programs_;
  std::vector<Program*> programs_;
  Trouble trouble_{stage_, cluster_.managers(), cluster_.nodes(), programs_};
};

// A verifier counts from when somebody may be answered with it.
void ChainStory::look_at_verifiers() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      const chain::Replica* const replica = cluster_.nodes()[target.node - 1]->replica(target.id);
      if (replica == nullptr || !replica->ready() || !replica->head()) continue;
      history_.serves(id, replica->verifier());
    }
  }
}

// As a scrub does, and more often.
void ChainStory::compare_some() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      chain::Replica* const replica = cluster_.nodes()[target.node - 1]->replica(target.id);
      if (replica != nullptr && stage_.rng.below(2) == 0) replica->compare_soon();
    }
  }
}

void ChainStory::check_differences() {
  std::istringstream lines(stage_.metrics.text());
  for (std::string line; std::getline(lines, line);) {
    const bool differs = line.starts_with("ff_target_differing_total{") && !line.ends_with(" 0");
    if (differs) stage_.broken("replicas differed: " + line);
  }
}

// What a disk has lost has come from others before its target served.
void ChainStory::look_for_damage() {
  for (const auto& node : cluster_.nodes()) node->begin_scrub();
  const auto all = [&] {
    return std::ranges::all_of(cluster_.nodes(),
                               [](const auto& node) { return node->scrubbed().has_value(); });
  };
  cluster_.run_until(all, 30 * kSecond, "all is quiet, and a scrub does not end");
  for (const auto& node : cluster_.nodes()) {
    if (node->scrubbed().value_or(0) == 0) continue;
    stage_.broken(node->name() + " serves, and has damaged chunks");
  }
}

bool ChainStory::all_equal() {
  for (const auto& [id, chain] : cluster_.routing().chains) {
    std::optional<std::vector<chunk::ChunkInfo>> first;
    for (const cluster::Target& target : chain.targets) {
      chunk::Store* const store = cluster_.nodes()[target.node - 1]->store();
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

Result<Outcome> ChainStory::run() {
  cluster_.on_look([this] {
    trouble_.look();
    look_at_verifiers();
  });
  cluster_.on_round([this] { compare_some(); });
  trouble_.know_routing([this]() -> const cluster::Routing& { return cluster_.routing(); });
  cluster_.form();
  for (int i = 0; i < kPrograms; i++) {
    chain_programs_.push_back(std::make_unique<ChainProgram>(stage_, i, history_));
    programs_.push_back(chain_programs_.back().get());
  }
  const int64_t end_ns = stage_.world.now_ns() + kChainTroubleNs;
  while (stage_.world.now_ns() < end_ns && !stage_.violation) {
    cluster_.run_for(stage_.some_ns(3 * kSecond));
    trouble_.begin();
  }
  trouble_.heal();
  const auto all_serve = [this] { return cluster_.all_serve(); };
  cluster_.run_until(all_serve, kChainHealNs, "healed, and not every target serves");
  // Every chain has targets enough without one of the two.
  trouble_.cut_two(kChainCutNs);
  cluster_.run_for(5 * kSecond);
  for (const auto& program : chain_programs_) program->load().stop_writing();
  const auto quiet = [&] {
    return std::ranges::none_of(chain_programs_,
                                [](const auto& it) { return it->load().writes_under_way(); });
  };
  cluster_.run_until(quiet, kStillNs,
                     "two nodes are cut from each other, and a chain stands still");
  trouble_.end_all();
  cluster_.run_until([&] { return all_serve() && all_equal(); }, kChainHealNs,
                     "all is quiet, and the replicas of a chain differ");
  look_for_damage();
  cluster_.run_for(5 * kSecond);  // of reads
  check_differences();
  if (stage_.violation) return *stage_.violation;
  const uint64_t trace =
      stage_.net.trace() ^ (history_.updates() + history_.reads()) * 0x9e3779b97f4a7c15;
  return Outcome{trace, stage_.world.now_ns(), history_.updates() + history_.reads(), stage_.faults,
                 stage_.net.delivered()};
}

}  // namespace

Result<Outcome> run_chain(uint64_t seed) {
  ChainStory story(seed);
  return story.run();
}

}  // namespace ff::scenario
