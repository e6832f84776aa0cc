// manager_metrics.cc: counts the parts of a cluster by their states.
#include "storage/cluster/manager_metrics.h"

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "storage/cluster/chain_health.h"
#include "storage/cluster/cluster_space.h"
#include "storage/cluster/disk_utilization.h"

namespace ff::cluster {

namespace {

constexpr std::array kTargetStates = {TargetState::serving, TargetState::lastsrv,
                                      TargetState::syncing, TargetState::waiting,
                                      TargetState::offline};

std::string_view disk_state(const Manager& manager, NodeId node, const DiskInfo& disk,
                            int64_t now_ns) {
  const NodeStatus* const status = manager.node_status(node);
  if (status == nullptr || !manager.alive(node, now_ns)) return "silent";
  const auto usage = status->disks.find(disk.id);
  if (usage == status->disks.end()) return "silent";
  if (!usage->second.error.empty()) return "failed";
  const uint32_t used = used_percent(usage->second.used, disk.capacity);
  if (used >= kFullPercent) return "full";
  return used >= kNearfullPercent ? "nearly_full" : "good";
}

}  // namespace

struct ManagerMetrics::Values {
  using ByState = std::map<std::string_view, int64_t>;
  int64_t primary = 0;
  ByState nodes = {{"alive", 0}, {"silent", 0}};
  ByState disks = {{"good", 0}, {"nearly_full", 0}, {"full", 0}, {"failed", 0}, {"silent", 0}};
  ChainHealth chains = {};
  std::map<TargetState, int64_t> targets = {};
  ClusterSpace space = {};
};

void ManagerMetrics::update(const Manager& manager, int64_t now_ns) {
  Values values{.primary = 1};
  const Routing& routing = manager.routing();
  for (const auto& [id, node] : routing.nodes) {
    const bool alive = manager.node_status(id) != nullptr && manager.alive(id, now_ns);
    values.nodes[alive ? "alive" : "silent"]++;
    for (const DiskInfo& disk : node.disks) values.disks[disk_state(manager, id, disk, now_ns)]++;
  }
  values.chains = health_of(routing);
  for (const auto& [id, chain] : routing.chains) {
    for (const Target& target : chain.targets) values.targets[target.state]++;
  }
  values.space = cluster_space(manager);
  set(values);
}

void ManagerMetrics::clear() { set({}); }

void ManagerMetrics::set(const Values& values) {
  const auto set_state = [&](std::string_view name, std::string_view help, std::string_view state,
                             int64_t value) {
    metrics_.gauge(name, help, {{"state", std::string(state)}}).set(value);
  };
  metrics_.gauge("ff_cluster_primary", "1: this manager is the primary").set(values.primary);
  for (const auto& [state, count] : values.nodes) {
    set_state("ff_cluster_nodes", "Storage nodes by state", state, count);
  }
  for (const auto& [state, count] : values.disks) {
    set_state("ff_cluster_disks", "Disks of storage nodes by state", state, count);
  }
  const auto set_chains = [&](std::string_view state, size_t count) {
    set_state("ff_cluster_chains", "Chains: whole (all targets serve), degraded, or lost (none)",
              state, static_cast<int64_t>(count));
  };
  set_chains("whole", values.chains.healthy);
  set_chains("degraded", values.chains.degraded);
  set_chains("lost", values.chains.lost);
  for (const TargetState state : kTargetStates) {
    const auto found = values.targets.find(state);
    set_state("ff_cluster_targets", "Targets by state", name_of(state),
              found == values.targets.end() ? 0 : found->second);
  }
  metrics_.gauge("ff_cluster_size_bytes", "Capacity for file data in bytes")
      .set(static_cast<int64_t>(values.space.total));
  metrics_.gauge("ff_cluster_free_bytes", "Bytes that new files can use")
      .set(static_cast<int64_t>(values.space.free));
}

}  // namespace ff::cluster
