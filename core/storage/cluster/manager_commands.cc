// The operator's commands to the cluster manager (manager.h), and what it tells the operator of a
// target that does not serve. Each command is one change of the routing, checked before it is
// proposed; nothing here waits or writes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "storage/cluster/manager.h"

namespace ff::cluster {

namespace {

Result<void> check_place(const Routing& routing, Place place) {
  const Node* const node = routing.node(place.node);
  if (node == nullptr) return fail(Errc::usage, "there is no node {}", place.node);
  if (std::ranges::find(node->disks, place.disk, &Disk::id) == node->disks.end()) {
    return fail(Errc::usage, "node {} has no disk {}", place.node, place.disk);
  }
  return {};
}

Result<void> check_places(const Routing& routing, const std::vector<Place>& places) {
  if (places.empty() || places.size() > kReplicasMax) {
    return fail(Errc::usage, "a chain of {} targets (1 to {} are possible)", places.size(),
                kReplicasMax);
  }
  std::set<NodeId> nodes;
  for (const Place place : places) {
    FF_TRY(check_place(routing, place));
    if (!nodes.insert(place.node).second) {
      return fail(Errc::usage, "a chain with two targets on node {}", place.node);
    }
  }
  return {};
}

}  // namespace

TargetId last_target(const Routing& routing) {
  TargetId last = 0;
  for (const auto& [id, chain] : routing.chains) {
    for (const Target& target : chain.targets) last = std::max(last, target.id);
    for (const SetAside& aside : chain.aside) last = std::max(last, aside.target);
  }
  return last;
}

Result<void> Manager::check_idle() const {
  FF_CHECK(!pending_);
  if (halted_) return *halted_;
  return {};
}

// The first target is lastsrv, so that its chain begins as one whose data it holds: none.
Result<Proposal> Manager::create_chains(const std::vector<std::vector<Place>>& chains) {
  FF_TRY(check_idle());
  if (chains.empty() || chains.size() > kChangeMax) {
    return fail(Errc::usage, "{} chains at once (1 to {} are possible)", chains.size(), kChangeMax);
  }
  if (routing_.chains.size() + chains.size() > kChainsMax) {
    return fail(Errc::usage, "there are {} chains already (the limit is {})",
                routing_.chains.size(), kChainsMax);
  }
  ChainId id = routing_.chains.empty() ? 0 : routing_.chains.rbegin()->first;
  TargetId target = last_target(routing_);
  Proposal proposal;
  for (const auto& places : chains) {
    FF_TRY(check_places(routing_, places));
    Chain chain{.id = ++id, .version = 1};
    for (const Place place : places) {
      const State state = chain.targets.empty() ? State::lastsrv : State::offline;
      chain.targets.push_back(
          {.id = ++target, .node = place.node, .disk = place.disk, .state = state});
    }
    proposal.changes.chains.push_back(std::move(chain));
  }
  return pend(std::move(proposal));
}

Result<Proposal> Manager::set_table(TableId id, std::vector<ChainId> chains) {
  FF_TRY(check_idle());
  if (chains.empty()) return fail(Errc::usage, "a table without chains");
  if (chains.size() > kChainsMax) return fail(Errc::usage, "a table of {} chains", chains.size());
  size_t replicas = 0;
  for (const ChainId chain_id : chains) {
    const Chain* const chain = routing_.chain(chain_id);
    if (chain == nullptr) return fail(Errc::usage, "there is no chain {}", chain_id);
    if (replicas == 0) replicas = chain->targets.size();
    if (chain->targets.size() != replicas) {
      return fail(Errc::usage, "chain {} has {} targets, and chain {} has {}", chain_id,
                  chain->targets.size(), chains.front(), replicas);
    }
  }
  const Table* const last = routing_.table(id);
  Table table{
      .id = id, .version = last == nullptr ? 1 : last->version + 1, .chains = std::move(chains)};
  if (last != nullptr && last->chains == table.chains) {
    return fail(Errc::exists, "table {} has these chains already", id);
  }
  Proposal proposal;
  proposal.changes.tables.push_back(std::move(table));
  return pend(std::move(proposal));
}

Result<Proposal> Manager::drain_node(NodeId id, bool drain) {
  FF_TRY(check_idle());
  const Node* const node = routing_.node(id);
  if (node == nullptr) return fail(Errc::usage, "there is no node {}", id);
  if (node->draining == drain) {
    return fail(Errc::exists, "node {} is {}drained already", id, drain ? "" : "not ");
  }
  Proposal proposal;
  proposal.changes.nodes.push_back(*node);
  proposal.changes.nodes.back().draining = drain;
  return pend(std::move(proposal));
}

Result<Chain> Manager::chain_of(TargetId id) const {
  for (const auto& [chain_id, chain] : routing_.chains) {
    if (find_target(chain, id) != nullptr) return chain;
  }
  return fail(Errc::usage, "there is no target {}", id);
}

Result<Proposal> Manager::drain_target(TargetId id, bool drain) {
  FF_TRY(check_idle());
  FF_TRY(Chain chain, chain_of(id));
  Target& target = *find_target(chain, id);
  if (target.draining == drain) {
    return fail(Errc::exists, "target {} is {}drained already", id, drain ? "" : "not ");
  }
  target.draining = drain;
  set_stops(chain);
  chain.version++;
  Proposal proposal;
  proposal.changes.chains.push_back(std::move(chain));
  return pend(std::move(proposal));
}

Result<Proposal> Manager::replace_target(TargetId id, Place place) {
  FF_TRY(check_idle());
  FF_TRY(Chain chain, chain_of(id));
  FF_TRY(check_place(routing_, place));
  Target& target = *find_target(chain, id);
  if (target.state != State::offline) {
    Error error = fail(Errc::refused, "target {} is {}", id, name_of(target.state));
    error.hint = fmt::format("Take it out first: ff admin drain --target {}", id);
    return error;
  }
  for (const Target& other : chain.targets) {
    if (other.id != id && other.node == place.node) {
      return fail(Errc::usage, "chain {} has target {} on node {} already", chain.id, other.id,
                  place.node);
    }
  }
  target = {.id = last_target(routing_) + 1, .node = place.node, .disk = place.disk};
  set_stops(chain);
  chain.version++;
  Proposal proposal;
  proposal.changes.chains.push_back(std::move(chain));
  return pend(std::move(proposal), true);
}

std::string Manager::why(const Chain& chain, const Target& target, int64_t now_ns) const {
  const auto cut = cuts_.find(target.id);
  if (cut != cuts_.end() && cut->second.out && !wanted_out(target)) {
    return fmt::format(
        "target {} before it could not reach it: it is tried again in {} s", cut->second.from,
        (std::max(cut->second.until_ns - now_ns, int64_t{0}) + kSecond - 1) / kSecond);
  }
  if (target.state == State::serving && target.stop) return "stops: it is being drained";
  if (target.state == State::serving && wanted_out(target)) {
    return "is to be drained, but is the last of its chain that serves";
  }
  if (target.state == State::serving) return "";
  const Seen* const node = seen(target.node);
  if (node == nullptr) return fmt::format("node {} has not been heard of yet", target.node);
  if (!alive(target.node, now_ns)) {
    return fmt::format("node {} has been silent for {} s", target.node,
                       (now_ns - node->heard_ns) / kSecond);
  }
  if (wanted_out(target)) return "drained by the operator";
  const TargetReport* const last = report(target);
  if (last == nullptr && !target.created) return "is being made";
  if (last == nullptr) return fmt::format("node {} has just started", target.node);
  const auto disk = node->disks.find(target.disk);
  if (last->local == Local::offline && disk != node->disks.end() && !disk->second.trouble.empty()) {
    return fmt::format("disk {}: {}", target.disk, disk->second.trouble);
  }
  if (last->local == Local::offline) {
    return target.created ? fmt::format("node {} has it offline", target.node) : "is being made";
  }
  switch (target.state) {
    case State::syncing:
      return fmt::format("is being copied: {} of {} bytes", last->copied, last->to_copy);
    case State::waiting:
      return chain.targets.front().state == State::serving
                 ? "waits until the one before it has been copied"
                 : fmt::format("waits for target {}, the last that served",
                               chain.targets.front().id);
    default: return "is coming back";
  }
}

}  // namespace ff::cluster
