// cluster_space.cc: fills the chains of a cluster in thought (max-min fair).
#include "storage/cluster/cluster_space.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace ff::cluster {

namespace {

// Free bytes of each disk of the routing that has reported no error.
std::map<DiskLocation, uint64_t> free_bytes(const Manager& manager) {
  std::map<DiskLocation, uint64_t> free;
  for (const auto& [id, node] : manager.routing().nodes) {
    const NodeStatus* const status = manager.node_status(id);
    if (status == nullptr) continue;
    for (const DiskInfo& disk : node.disks) {
      const auto usage = status->disks.find(disk.id);
      if (usage == status->disks.end() || !usage->second.error.empty()) continue;
      free[{id, disk.id}] = disk.capacity - std::min(disk.capacity, usage->second.used);
    }
  }
  return free;
}

// The chains that new files use.
std::set<ChainId> chains_of_tables(const Routing& routing) {
  std::map<TableId, const ChainTable*> newest;
  for (const auto& [key, table] : routing.tables) newest[key.first] = &table;
  std::set<ChainId> chains;
  for (const auto& [id, table] : newest) chains.insert(table->chains.begin(), table->chains.end());
  return chains;
}

class ChainFiller {
 public:
  explicit ChainFiller(const std::map<DiskLocation, uint64_t>& free) {
    for (const auto& [disk, bytes] : free) disks_[disk].free = static_cast<double>(bytes);
  }
  void add(const Chain& chain) {
    auto& own = chains_.emplace_back();
    for (const Target& target : chain.targets) {
      const auto found = disks_.find({target.node, target.disk});
      if (found == disks_.end()) continue;
      own.push_back(&found->second);
      found->second.chains.push_back(chains_.size() - 1);
      found->second.filling++;
    }
  }
  // Fills all chains; returns their bytes.
  double run() {
    std::vector<bool> full(chains_.size());
    double bytes = 0;
    for (auto& [location, disk] : disks_) schedule(disk);
    while (!queue_.empty()) {
      const auto [level, disk] = *queue_.begin();
      for (const size_t chain : disk->chains) {
        if (full[chain]) continue;
        full[chain] = true;
        bytes += level;
        for (DiskFill* const other : chains_[chain]) stop_chain(*other, level);
      }
    }
    return bytes;
  }

 private:
  struct DiskFill {
    double free = 0;     // bytes, when its chains are filled up to `level`
    double level = 0;    // bytes in each chain
    double full_at = 0;  // the level at which it is full
    size_t filling = 0;  // chains that are not full
    std::vector<size_t> chains;
  };

  void schedule(DiskFill& disk) {
    if (disk.filling == 0) return;
    disk.full_at = disk.level + disk.free / static_cast<double>(disk.filling);
    queue_.emplace(disk.full_at, &disk);
  }
  // A chain of the disk is full at this level.
  void stop_chain(DiskFill& disk, double level) {
    queue_.erase({disk.full_at, &disk});
    disk.free = std::max(0.0, disk.free - (level - disk.level) * static_cast<double>(disk.filling));
    disk.level = level;
    disk.filling--;
    schedule(disk);
  }

  std::map<DiskLocation, DiskFill> disks_;
  std::vector<std::vector<DiskFill*>> chains_;  // the disks of each chain
  std::set<std::pair<double, DiskFill*>> queue_;
};

}  // namespace

ClusterSpace cluster_space(const Manager& manager) {
  const Routing& routing = manager.routing();
  std::set<DiskLocation> used;
  uint64_t targets = 0;
  for (const auto& [id, chain] : routing.chains) {
    targets += chain.targets.size();
    for (const Target& target : chain.targets) used.insert({target.node, target.disk});
  }
  if (targets == 0) return {};
  double total = 0;
  for (const auto& [id, node] : routing.nodes) {
    for (const DiskInfo& disk : node.disks) {
      if (used.contains({id, disk.id})) total += static_cast<double>(disk.capacity);
    }
  }
  total *= static_cast<double>(routing.chains.size()) / static_cast<double>(targets);
  ChainFiller filler(free_bytes(manager));
  for (const ChainId id : chains_of_tables(routing)) filler.add(routing.chains.at(id));
  const double free = std::min(filler.run(), total);
  return {.total = static_cast<uint64_t>(total), .free = static_cast<uint64_t>(free)};
}

}  // namespace ff::cluster
