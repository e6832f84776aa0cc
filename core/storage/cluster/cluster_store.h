// The records of the cluster manager in the KV store, and its lease. Ids and versions in keys are
// 64-bit big-endian, so that keys sort as numbers; values are messages of cluster.proto.
//
//   CONF "cluster"          Cluster: its id and routing version; written by every change
//   LEAS "cluster"          Lease of the primary
//   CONF "fill"             Fill: how full the disks are, written periodically
//   NODE id                 Node            CHAN id    Chain
//   TABL id version         Table           CONF "loss" chain version    Loss
//   NODE, CHAN, TABL, CONF "loss"           guards of these ranges (kv::Txn::range)
//
// Each write checks in its transaction that the lease still has the epoch of the writer: a deposed
// primary that does not know it yet can write nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/task.h"
#include "platform/kv/engine.h"
#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

struct LeaderLease {
  uint64_t epoch = 0;       // 0: never held
  uint64_t renewal = 0;     // increments within an epoch
  std::string holder = {};  // address of the holder; empty: released
  uint64_t token = 0;       // identifies the process of the holder
  bool operator==(const LeaderLease&) const = default;
};

struct StoredCluster {
  std::optional<Routing> routing = {};  // nothing: no cluster yet
  std::vector<DataLoss> losses = {};
};

// Deadlines are steady times. Errors besides the documented ones: those of kv::Engine; a failed
// write may have been applied.
class ClusterStore {
 public:
  explicit ClusterStore(kv::Engine& engine) : engine_(engine) {}

  Task<Result<LeaderLease>> read_lease(int64_t deadline_ns);
  // Acquires the lease for `holder` with the next epoch, if it is still as `seen`. Errc::exists: it
  // has changed.
  Task<Result<LeaderLease>> acquire_lease(LeaderLease seen, std::string holder, uint64_t token,
                                          int64_t deadline_ns);
  // The following fail with Errc::refused when the caller was deposed.
  Task<Result<LeaderLease>> renew_lease(LeaderLease held, int64_t deadline_ns);
  Task<Result<void>> release_lease(LeaderLease held, int64_t deadline_ns);
  // Errc::exists: the cluster exists already.
  Task<Result<void>> init(LeaderLease held, std::string cluster, int64_t deadline_ns);
  Task<Result<void>> write(LeaderLease held, Proposal proposal, int64_t deadline_ns);

  Task<Result<void>> write_utilization(LeaderLease held, DiskUtilization utilization,
                                       int64_t deadline_ns);

  Task<Result<StoredCluster>> load(int64_t deadline_ns);
  Task<Result<DiskUtilization>> read_utilization(int64_t deadline_ns);
  // Routing version; 0: no cluster yet.
  Task<Result<uint64_t>> read_version(int64_t deadline_ns);

 private:
  Task<Result<LeaderLease>> swap_lease(LeaderLease expected, LeaderLease next, int64_t deadline_ns);
  Task<Result<void>> run_as_holder(LeaderLease held, kv::TxnFunction function, int64_t deadline_ns);

  kv::Engine& engine_;
};

}  // namespace ff::cluster
