// Commands of the operator to the cluster manager (manager.h), and the explanation why a target
// does not serve. Each command is one change of the routing, checked before it is proposed; nothing
// here waits or writes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "storage/cluster/manager.h"

namespace ff::cluster {

namespace {

Result<void> check_location(const Routing& routing, DiskLocation location) {
  const NodeInfo* const node = routing.node(location.node);
  if (node == nullptr) return fail(Errc::usage, "unknown node {}", location.node);
  if (std::ranges::find(node->disks, location.disk, &DiskInfo::id) == node->disks.end()) {
    return fail(Errc::usage, "node {} has no disk {}", location.node, location.disk);
  }
  return {};
}

Result<void> check_locations(const Routing& routing, const std::vector<DiskLocation>& locations) {
  if (locations.empty() || locations.size() > kReplicasMax) {
    return fail(Errc::usage, "{} targets in a chain: must be 1 to {}", locations.size(),
                kReplicasMax);
  }
  std::set<NodeId> nodes;
  for (const DiskLocation location : locations) {
    FF_TRY(check_location(routing, location));
    if (!nodes.insert(location.node).second) {
      return fail(Errc::usage, "two targets of a chain on node {}", location.node);
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

// The first target starts as lastsrv, so that the chain begins with its (empty) data.
Result<Proposal> Manager::create_chains(const std::vector<std::vector<DiskLocation>>& chains) {
  FF_TRY(check_idle());
  if (chains.empty() || chains.size() > kChangeMax) {
    return fail(Errc::usage, "{} chains in one request: must be 1 to {}", chains.size(),
                kChangeMax);
  }
  if (routing_.chains.size() + chains.size() > kChainsMax) {
    return fail(Errc::usage, "the cluster has {} chains already (limit: {})",
                routing_.chains.size(), kChainsMax);
  }
  ChainId id = routing_.chains.empty() ? 0 : routing_.chains.rbegin()->first;
  TargetId target = last_target(routing_);
  Proposal proposal;
  for (const auto& locations : chains) {
    FF_TRY(check_locations(routing_, locations));
    Chain chain{.id = ++id, .version = 1};
    for (const DiskLocation location : locations) {
      const TargetState state = chain.targets.empty() ? TargetState::lastsrv : TargetState::offline;
      chain.targets.push_back(
          {.id = ++target, .node = location.node, .disk = location.disk, .state = state});
    }
    proposal.changes.chains.push_back(std::move(chain));
  }
  return set_pending(std::move(proposal));
}

Result<Proposal> Manager::set_table(TableId id, std::vector<ChainId> chains) {
  FF_TRY(check_idle());
  if (chains.empty()) return fail(Errc::usage, "the table has no chains");
  if (chains.size() > kChainsMax)
    return fail(Errc::usage, "{} chains exceed the limit of a table", chains.size());
  size_t replicas = 0;
  for (const ChainId chain_id : chains) {
    const Chain* const chain = routing_.chain(chain_id);
    if (chain == nullptr) return fail(Errc::usage, "unknown chain {}", chain_id);
    if (replicas == 0) replicas = chain->targets.size();
    if (chain->targets.size() != replicas) {
      return fail(Errc::usage, "chain {} has {} targets, but chain {} has {}", chain_id,
                  chain->targets.size(), chains.front(), replicas);
    }
  }
  const ChainTable* const last = routing_.table(id);
  ChainTable table{
      .id = id, .version = last == nullptr ? 1 : last->version + 1, .chains = std::move(chains)};
  if (last != nullptr && last->chains == table.chains) {
    return fail(Errc::exists, "table {} already has these chains", id);
  }
  Proposal proposal;
  proposal.changes.tables.push_back(std::move(table));
  return set_pending(std::move(proposal));
}

Result<Proposal> Manager::drain_node(NodeId id, bool drain) {
  FF_TRY(check_idle());
  const NodeInfo* const node = routing_.node(id);
  if (node == nullptr) return fail(Errc::usage, "unknown node {}", id);
  if (node->draining == drain) {
    return fail(Errc::exists, "node {} is already {}drained", id, drain ? "" : "not ");
  }
  Proposal proposal;
  proposal.changes.nodes.push_back(*node);
  proposal.changes.nodes.back().draining = drain;
  return set_pending(std::move(proposal));
}

Result<Chain> Manager::chain_of(TargetId id) const {
  for (const auto& [chain_id, chain] : routing_.chains) {
    if (find_target(chain, id) != nullptr) return chain;
  }
  return fail(Errc::usage, "unknown target {}", id);
}

Result<Proposal> Manager::drain_target(TargetId id, bool drain) {
  FF_TRY(check_idle());
  FF_TRY(Chain chain, chain_of(id));
  Target& target = *find_target(chain, id);
  if (target.draining == drain) {
    return fail(Errc::exists, "target {} is already {}drained", id, drain ? "" : "not ");
  }
  target.draining = drain;
  update_stop_flags(chain);
  chain.version++;
  Proposal proposal;
  proposal.changes.chains.push_back(std::move(chain));
  return set_pending(std::move(proposal));
}

Result<Proposal> Manager::replace_target(TargetId id, DiskLocation location) {
  FF_TRY(check_idle());
  FF_TRY(Chain chain, chain_of(id));
  FF_TRY(check_location(routing_, location));
  Target& target = *find_target(chain, id);
  if (target.state != TargetState::offline) {
    Error error = fail(Errc::refused, "target {} is {}", id, name_of(target.state));
    error.hint = fmt::format("Drain it first: ff admin drain --target {}", id);
    return error;
  }
  for (const Target& other : chain.targets) {
    if (other.id != id && other.node == location.node) {
      return fail(Errc::usage, "chain {} already has target {} on node {}", chain.id, other.id,
                  location.node);
    }
  }
  target = {.id = last_target(routing_) + 1, .node = location.node, .disk = location.disk};
  update_stop_flags(chain);
  chain.version++;
  Proposal proposal;
  proposal.changes.chains.push_back(std::move(chain));
  return set_pending(std::move(proposal), true);
}

std::string Manager::not_serving_reason(const Chain& chain, const Target& target,
                                        int64_t now_ns) const {
  const auto isolation = isolations_.find(target.id);
  if (isolation != isolations_.end() && isolation->second.out && !is_draining(target)) {
    return fmt::format(
        "its predecessor, target {}, could not reach it: retry in {} s", isolation->second.from,
        (std::max(isolation->second.until_ns - now_ns, int64_t{0}) + kSecond - 1) / kSecond);
  }
  if (target.state == TargetState::serving && target.stop) return "is being drained";
  if (target.state == TargetState::serving && is_draining(target)) {
    return "cannot be drained: it is the last serving target of its chain";
  }
  if (target.state == TargetState::serving) return "";
  const NodeStatus* const node = node_status(target.node);
  if (node == nullptr) return fmt::format("no heartbeat of node {} yet", target.node);
  if (!alive(target.node, now_ns)) {
    return fmt::format("no heartbeat of node {} for {} s", target.node,
                       (now_ns - node->last_heartbeat_ns) / kSecond);
  }
  if (is_draining(target)) return "drained by the operator";
  const TargetReport* const last = report(target);
  if (last == nullptr && !target.created) return "is being created";
  if (last == nullptr) return fmt::format("node {} has just started", target.node);
  const auto disk = node->disks.find(target.disk);
  if (last->local == LocalTargetState::offline && disk != node->disks.end() &&
      !disk->second.error.empty()) {
    return fmt::format("disk {}: {}", target.disk, disk->second.error);
  }
  if (last->local == LocalTargetState::offline) {
    return target.created ? fmt::format("node {} reports it offline", target.node)
                          : "is being created";
  }
  switch (target.state) {
    case TargetState::syncing:
      return fmt::format("syncing: {} of {} bytes copied", last->copied, last->to_copy);
    case TargetState::waiting:
      return chain.targets.front().state == TargetState::serving
                 ? "waiting for the previous replica to sync"
                 : fmt::format("waiting for target {}, which served last",
                               chain.targets.front().id);
    default: return "rejoining the chain";
  }
}

}  // namespace ff::cluster
