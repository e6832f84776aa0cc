// The capacity of a cluster for files, as df and the metrics of the manager show it.
#pragma once

#include <cstdint>

#include "storage/cluster/manager.h"

namespace ff::cluster {

struct ClusterSpace {
  uint64_t total = 0;  // bytes of file data: disks with targets, divided by the number of replicas
  uint64_t free = 0;   // bytes that new files can use
};

// What new files can use is less than the free space of all disks: a chain is full as soon as one
// of its disks is. All chains of the newest tables are filled alike until a disk is full; its
// chains stop there, and the others go on. Disks that have failed or never reported do not limit a
// chain.
ClusterSpace cluster_space(const Manager& manager);

}  // namespace ff::cluster
