// fill.cc: from what nodes report.
#include "storage/cluster/fill.h"

#include <algorithm>

namespace ff::cluster {

Fill fill_of(const Manager& manager) {
  Fill fill;
  for (const auto& [id, node] : manager.routing().nodes) {
    const Seen* const seen = manager.seen(id);
    if (seen == nullptr) continue;
    for (const Disk& disk : node.disks) {
      const auto use = seen->disks.find(disk.id);
      if (use != seen->disks.end())
        fill[{id, disk.id}] = used_percent(use->second.used, disk.capacity);
    }
  }
  return fill;
}

uint32_t percent_of(const Fill& fill, const Chain& chain) {
  uint32_t most = 0;
  for (const Target& target : chain.targets) {
    const auto found = fill.find({target.node, target.disk});
    if (found != fill.end()) most = std::max(most, found->second);
  }
  return most;
}

}  // namespace ff::cluster
