// disk_utilization.cc: computed from the reports of nodes.
#include "storage/cluster/disk_utilization.h"

#include <algorithm>

namespace ff::cluster {

DiskUtilization disk_utilization(const Manager& manager) {
  DiskUtilization utilization;
  for (const auto& [id, node] : manager.routing().nodes) {
    const NodeStatus* const status = manager.node_status(id);
    if (status == nullptr) continue;
    for (const DiskInfo& disk : node.disks) {
      const auto use = status->disks.find(disk.id);
      if (use != status->disks.end())
        utilization[{id, disk.id}] = used_percent(use->second.used, disk.capacity);
    }
  }
  return utilization;
}

uint32_t chain_utilization(const DiskUtilization& utilization, const Chain& chain) {
  uint32_t most = 0;
  for (const Target& target : chain.targets) {
    const auto found = utilization.find({target.node, target.disk});
    if (found != utilization.end()) most = std::max(most, found->second);
  }
  return most;
}

}  // namespace ff::cluster
