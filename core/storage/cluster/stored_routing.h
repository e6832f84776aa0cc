// The routing read from the KV store, for services beside the managers on the same store: available
// to each of them whichever manager is primary. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "platform/base/wait.h"
#include "storage/cluster/cluster_store.h"

namespace ff::cluster {

class StoredRouting {
 public:
  // `changed` is called after each change. Both references must outlive it.
  StoredRouting(kv::Engine& engine, Loop& loop, std::function<void()> changed);

  // Version 0 until the first read, or while there is no cluster.
  const Routing& routing() const { return routing_; }
  const DiskUtilization& utilization() const { return utilization_; }
  // Steady time at which the last successful read began.
  int64_t refreshed_ns() const { return refreshed_ns_; }
  // Polls for changes periodically, and after refresh(). Runs until cancelled.
  Task<void> run();
  void refresh() { refresh_requested_.set(); }

 private:
  Task<Result<void>> reload();
  Task<Result<bool>> reload_utilization();

  ClusterStore store_;
  Loop& loop_;
  const std::function<void()> changed_;
  Routing routing_;
  DiskUtilization utilization_;
  int64_t utilization_ns_ = INT64_MIN;  // time of the last read
  int64_t refreshed_ns_ = INT64_MIN;
  Event refresh_requested_;
};

}  // namespace ff::cluster
