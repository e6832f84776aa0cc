// cluster_oracle.cc: the checks of each invariant, and the simulated writes.
#include "lab/scenario/cluster_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/kv/inline_task.h"
#include "storage/cluster/cluster_store.h"
#include "storage/cluster/transition.h"

namespace ff::scenario::cluster_parts {

namespace {

using cluster::Chain;
using cluster::Target;
using cluster::TargetState;

// This engine has no delays and faults, so the load never suspends.
Result<cluster::StoredCluster> load(kv::Engine& engine) {
  cluster::ClusterStore store(engine);
  return kv::run_inline(store.load(INT64_MAX));
}

}  // namespace

ClusterOracle::ClusterOracle(ClusterSimulation& simulation, Managers& managers, Nodes& nodes)
    : simulation_(simulation),
      managers_(managers),
      nodes_(nodes),
      engine_(simulation.store, simulation.world.loop(), simulation.rng) {}

void ClusterOracle::check() {
  for (const auto& [id, chain] : stored_.chains) note_serving(chain);
  check_store();
  check_primaries();
  check_nodes();
  for (const auto& [id, chain] : stored_.chains) {
    if (simulation_.rng.below(8) == 0) write(id);
  }
}

void ClusterOracle::check_store() {
  if (simulation_.store.revision() == revision_) return;
  revision_ = simulation_.store.revision();
  auto loaded = load(engine_);
  if (!loaded) return simulation_.report_violation(loaded.error().message);
  if (!loaded->routing) return;
  cluster::Routing now = std::move(*loaded->routing);
  if (now.version < stored_.version) simulation_.report_violation("the routing version decreased");
  for (const auto& [id, chain] : stored_.chains) {
    const Chain* const after = now.chain(id);
    if (after == nullptr)
      return simulation_.report_violation(fmt::format("chain {} disappeared", id));
    // There may be several changes since the last check.
    const bool lost = chain.lost_version != after->lost_version;
    if (auto broken = cluster::broken_invariant(chain, *after, lost); !broken.empty()) {
      simulation_.report_violation(std::move(broken));
    }
    if (lost) check_loss(chain, *after);
  }
  stored_ = std::move(now);
}

void ClusterOracle::note_serving(const Chain& chain) {
  for (const Target& target : chain.targets) {
    if (target.state == TargetState::serving) served_[target.id] = writes_;
  }
}

// After an accepted loss the promoted target must have served itself, and at least as long as every
// other known target. From then on its data defines the chain.
void ClusterOracle::check_loss(const Chain& before, const Chain& after) {
  const Target& heir = after.targets.front();
  const Target& dead = before.targets.front();
  const bool returned = cluster::find_target(before, heir.id) == nullptr;
  for (const Target& other : before.targets) {
    if (returned || other.id == dead.id || other.id == heir.id || !served_.contains(other.id)) {
      continue;
    }
    if (served_.contains(heir.id) && served_[heir.id] >= served_[other.id]) continue;
    simulation_.report_violation(
        fmt::format("chain {} version {} promoted target {}, but target {} has served longer",
                    after.id, after.version, heir.id, other.id));
  }
  incomplete_.erase(heir.id);
  for (const Target& target : after.targets) {
    if (target.id != heir.id && target.state != TargetState::serving) incomplete_.insert(target.id);
  }
}

void ClusterOracle::check_primaries() {
  int acting = 0;
  for (const auto& manager : managers_) {
    const uint64_t epoch = manager->epoch();
    if (epoch == 0) continue;
    acting++;
    if (epoch < epoch_)
      simulation_.report_violation(
          fmt::format("{} acts as primary in an old epoch", manager->name()));
    epoch_ = std::max(epoch_, epoch);
    if (manager->halted()) simulation_.report_violation(manager->halted()->message);
  }
  if (acting > 1) simulation_.report_violation(fmt::format("{} managers act as primary", acting));
}

void ClusterOracle::check_nodes() {
  heads_.clear();
  for (const auto& node : nodes_) {
    if (!node->running()) continue;
    for (const auto& [id, chain] : node->member().routing().chains) {
      for (const Target& target : chain.targets) {
        if (target.node == node->id()) check_target({node.get(), &chain, &target});
      }
    }
  }
}

// Paused processes count too: they would act on this state when they resume.
void ClusterOracle::check_target(const TargetView& believer) {
  const auto& [node, chain, target] = believer;
  const int64_t now_ns = node->now_ns();
  if (target->state != TargetState::serving || !node->member().may_write(target->id, now_ns))
    return;
  const auto says = [&, n = node, c = chain, t = target](std::string_view what) {
    simulation_.report_violation(fmt::format("{} serves target {} of chain {} under version {}: {}",
                                             n->name(), t->id, c->id, c->version, what));
  };
  const Chain* const true_chain = stored_.chain(chain->id);
  const Target* const stored_target = cluster::find_target(*true_chain, target->id);
  // A target that was set aside may serve until its node knows; no other target serves before that.
  const bool ending = cluster::find_set_aside(*true_chain, target->id) != nullptr &&
                      true_chain->targets.front().state == TargetState::lastsrv;
  if ((stored_target == nullptr || stored_target->state != TargetState::serving) && !ending) {
    says(fmt::format("stored version {} does not contain it", true_chain->version));
  }
  if (target == &chain->targets.front()) {
    const auto [place, is_new] = heads_.emplace(chain->id, node->id());
    if (!is_new) says(fmt::format("node {} acts as head too", place->second));
  }
  if (node->member().may_read(target->id, now_ns) && incomplete_.contains(target->id)) {
    says("it serves reads, but lacks acknowledged writes");
  }
}

// The target's node if it would accept a write under the chain version of the head; else null.
NodeProcess* ClusterOracle::ready(const Target& target, const Chain& chain, bool awake) const {
  NodeProcess* const node = nodes_[target.node - 1].get();
  if (!node->running() || (awake && node->paused())) return nullptr;
  const Chain* const known = node->member().routing().chain(chain.id);
  if (known == nullptr || known->version != chain.version) return nullptr;
  return node->member().may_write(target.id, node->now_ns()) ? node : nullptr;
}

// Simulates a write by the head; it is acknowledged when every target of the head's chain has it.
void ClusterOracle::write(cluster::ChainId id) {
  for (const auto& node : nodes_) {
    if (!node->running() || node->paused()) continue;
    const Chain* const chain = node->member().routing().chain(id);
    if (chain == nullptr) continue;
    const Target& head = chain->targets.front();
    if (head.node != node->id() || head.state != TargetState::serving) continue;
    std::set<cluster::TargetId> wrote;
    for (const Target& target : chain->targets) {
      if (target.state != TargetState::serving && target.state != TargetState::syncing) continue;
      if (ready(target, *chain, true) == nullptr) return;
      wrote.insert(target.id);
    }
    writes_++;
    const Chain& after = *stored_.chain(id);
    if (chain->version < after.lost_version) continue;  // given up already
    for (const Target& target : after.targets) {
      if (!wrote.contains(target.id)) incomplete_.insert(target.id);
    }
  }
}

bool ClusterOracle::copy(NodeProcess& node, cluster::TargetId id, uint64_t chain_version) {
  for (const auto& [chain_id, chain] : node.member().routing().chains) {
    if (chain.version != chain_version || cluster::find_target(chain, id) == nullptr) continue;
    const Target* const target = cluster::find_target(chain, id);
    if (target == &chain.targets.front()) return false;
    const Target& before = *(target - 1);
    if (ready(before, chain, true) == nullptr) return false;
    if (chain_version < stored_.chain(chain_id)->lost_version) return true;
    if (incomplete_.contains(before.id)) {
      incomplete_.insert(id);
    } else {
      incomplete_.erase(id);
    }
    return true;
  }
  return false;
}

bool ClusterOracle::all_serve() const {
  for (const auto& [id, chain] : stored_.chains) {
    for (const Target& target : chain.targets) {
      const NodeProcess& node = *nodes_[target.node - 1];
      if (target.state != TargetState::serving || target.stop) return false;
      if (!node.running() || !node.member().may_read(target.id, node.now_ns())) return false;
    }
  }
  return !stored_.chains.empty();
}

}  // namespace ff::scenario::cluster_parts
