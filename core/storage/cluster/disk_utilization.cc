// disk_utilization.cc: computed from the reports of nodes.
#include "storage/cluster/disk_utilization.h"

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

}  // namespace ff::cluster
