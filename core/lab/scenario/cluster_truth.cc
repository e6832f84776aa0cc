// cluster_truth.cc: each rule of the story, and the writes that make them matter.
#include "lab/scenario/cluster_truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/kv/inline_task.h"
#include "storage/cluster/store.h"
#include "storage/cluster/transition.h"

namespace ff::scenario::cluster_parts {

namespace {

using cluster::Chain;
using cluster::State;
using cluster::Target;

// Without delays and faults it answers at once.
Result<cluster::Stored> load(kv::Engine& engine) {
  cluster::Store store(engine);
  return kv::run_inline(store.load(INT64_MAX));
}

}  // namespace

Truth::Truth(ClusterStage& stage, Managers& managers, Nodes& nodes)
    : stage_(stage),
      managers_(managers),
      nodes_(nodes),
      engine_(stage.store, stage.world.loop(), stage.rng) {}

void Truth::look() {
  for (const auto& [id, chain] : stored_.chains) note_serving(chain);
  look_at_store();
  look_at_primaries();
  look_at_nodes();
  for (const auto& [id, chain] : stored_.chains) {
    if (stage_.rng.below(8) == 0) write(id);
  }
}

void Truth::look_at_store() {
  if (stage_.store.revision() == revision_) return;
  revision_ = stage_.store.revision();
  auto loaded = load(engine_);
  if (!loaded) return stage_.broken(loaded.error().message);
  if (!loaded->routing) return;
  cluster::Routing now = std::move(*loaded->routing);
  if (now.version < stored_.version) stage_.broken("the routing version fell");
  for (const auto& [id, chain] : stored_.chains) {
    const Chain* const after = now.chain(id);
    if (after == nullptr) return stage_.broken(fmt::format("chain {} is gone", id));
    // Several changes may have come since the last look.
    const bool lost = chain.lost_version != after->lost_version;
    if (auto broken = cluster::broken_invariant(chain, *after, lost); !broken.empty()) {
      stage_.broken(std::move(broken));
    }
    if (lost) look_at_loss(chain, *after);
  }
  stored_ = std::move(now);
}

void Truth::note_serving(const Chain& chain) {
  for (const Target& target : chain.targets) {
    if (target.state == State::serving) served_[target.id] = writes_;
  }
}

// Whoever goes on in the place of the last that served has served itself, and no shorter than any
// other that is known. From then on what it has is what there is.
void Truth::look_at_loss(const Chain& before, const Chain& after) {
  const Target& heir = after.targets.front();
  const Target& dead = before.targets.front();
  const bool returned = cluster::find_target(before, heir.id) == nullptr;
  for (const Target& other : before.targets) {
    if (returned || other.id == dead.id || other.id == heir.id || !served_.contains(other.id)) {
      continue;
    }
    if (served_.contains(heir.id) && served_[heir.id] >= served_[other.id]) continue;
    stage_.broken(
        fmt::format("chain {} version {} goes on with target {}, and target {} has served "
                    "longer",
                    after.id, after.version, heir.id, other.id));
  }
  lacking_.erase(heir.id);
  for (const Target& target : after.targets) {
    if (target.id != heir.id && target.state != State::serving) lacking_.insert(target.id);
  }
}

void Truth::look_at_primaries() {
  int acting = 0;
  for (const auto& manager : managers_) {
    const uint64_t epoch = manager->epoch();
    if (epoch == 0) continue;
    acting++;
    if (epoch < epoch_) stage_.broken(fmt::format("{} acts in an old epoch", manager->name()));
    epoch_ = std::max(epoch_, epoch);
    if (manager->halted()) stage_.broken(manager->halted()->message);
  }
  if (acting > 1) stage_.broken(fmt::format("{} managers act as primary", acting));
}

void Truth::look_at_nodes() {
  heads_.clear();
  for (const auto& node : nodes_) {
    if (!node->running()) continue;
    for (const auto& [id, chain] : node->member().routing().chains) {
      for (const Target& target : chain.targets) {
        if (target.node == node->id()) look_at({node.get(), &chain, &target});
      }
    }
  }
}

// A paused process counts: it would act so when it goes on now.
void Truth::look_at(const Believer& believer) {
  const auto& [node, chain, target] = believer;
  const int64_t now_ns = node->now_ns();
  if (target->state != State::serving || !node->member().may_write(target->id, now_ns)) return;
  const auto says = [&, n = node, c = chain, t = target](std::string_view what) {
    stage_.broken(fmt::format("{} serves target {} of chain {} under version {}: {}", n->name(),
                              t->id, c->id, c->version, what));
  };
  const Chain* const true_chain = stored_.chain(chain->id);
  const Target* const truth = cluster::find_target(*true_chain, target->id);
  // What was set aside may go on until its node knows: nobody else serves before.
  const bool ending = cluster::find_aside(*true_chain, target->id) != nullptr &&
                      true_chain->targets.front().state == State::lastsrv;
  if ((truth == nullptr || truth->state != State::serving) && !ending) {
    says(fmt::format("version {} is stored without it", true_chain->version));
  }
  if (target == &chain->targets.front()) {
    const auto [place, is_new] = heads_.emplace(chain->id, node->id());
    if (!is_new) says(fmt::format("node {} believes to be head too", place->second));
  }
  if (node->member().may_read(target->id, now_ns) && lacking_.contains(target->id)) {
    says("it reads, and lacks what was acknowledged");
  }
}

// The node, when it would take part in a write under the version that the head knows.
NodeProcess* Truth::ready(const Target& target, const Chain& chain, bool awake) const {
  NodeProcess* const node = nodes_[target.node - 1].get();
  if (!node->running() || (awake && node->paused())) return nullptr;
  const Chain* const known = node->member().routing().chain(chain.id);
  if (known == nullptr || known->version != chain.version) return nullptr;
  return node->member().may_write(target.id, node->now_ns()) ? node : nullptr;
}

// As the head knows its chain; acknowledged when every target that takes part has it.
void Truth::write(cluster::ChainId id) {
  for (const auto& node : nodes_) {
    if (!node->running() || node->paused()) continue;
    const Chain* const chain = node->member().routing().chain(id);
    if (chain == nullptr) continue;
    const Target& head = chain->targets.front();
    if (head.node != node->id() || head.state != State::serving) continue;
    std::set<cluster::TargetId> wrote;
    for (const Target& target : chain->targets) {
      if (target.state != State::serving && target.state != State::syncing) continue;
      if (ready(target, *chain, true) == nullptr) return;
      wrote.insert(target.id);
    }
    writes_++;
    const Chain& after = *stored_.chain(id);
    if (chain->version < after.lost_version) continue;  // given up already
    for (const Target& target : after.targets) {
      if (!wrote.contains(target.id)) lacking_.insert(target.id);
    }
  }
}

bool Truth::copy(NodeProcess& node, cluster::TargetId id, uint64_t chain_version) {
  for (const auto& [chain_id, chain] : node.member().routing().chains) {
    if (chain.version != chain_version || cluster::find_target(chain, id) == nullptr) continue;
    const Target* const target = cluster::find_target(chain, id);
    if (target == &chain.targets.front()) return false;
    const Target& before = *(target - 1);
    if (ready(before, chain, true) == nullptr) return false;
    if (chain_version < stored_.chain(chain_id)->lost_version) return true;
    if (lacking_.contains(before.id)) {
      lacking_.insert(id);
    } else {
      lacking_.erase(id);
    }
    return true;
  }
  return false;
}

bool Truth::all_serve() const {
  for (const auto& [id, chain] : stored_.chains) {
    for (const Target& target : chain.targets) {
      const NodeProcess& node = *nodes_[target.node - 1];
      if (target.state != State::serving || target.stop) return false;
      if (!node.running() || !node.member().may_read(target.id, node.now_ns())) return false;
    }
  }
  return !stored_.chains.empty();
}

}  // namespace ff::scenario::cluster_parts
