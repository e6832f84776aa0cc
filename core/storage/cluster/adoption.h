// Recovery after the restore of an old database: nodes hold newer routing than the manager, which
// has halted. The nodes offer their routing, and `ff admin adopt` makes the newest one the routing
// of the cluster. Raising the versions of the restored routing would be wrong: it may call a target
// serving that has missed writes since.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

class Adoption {
 public:
  // Whether the node has offered this routing version already.
  bool has_offer(NodeId node, uint64_t version) const;
  // Adds a page of the routing of a node, in order, from version 0 on. Errc::refused: out of order.
  Result<void> offer(NodeId node, const RoutingDelta& page);
  // The newest offered routing of the same cluster as `own`, newer than it. Errc::refused: there is
  // none; a node of that routing has not offered, so that a newer one may be missing (unless
  // `without_absent`); or `own` has records that it lacks, made after the restore.
  Result<Routing> newest(const Routing& own, bool without_absent) const;

 private:
  std::map<NodeId, Routing> pages_;              // incomplete offers
  std::map<NodeId, uint64_t> offered_versions_;  // version of the complete offer of a node
  std::optional<Routing> newest_;
};

// Deltas from `own` to `next`, of at most kChangeMax records each. Only the last one changes the
// version: if the sequence is interrupted, the store is as old as before, and the manager halts
// again.
std::vector<RoutingDelta> routing_changes_between(const Routing& own, const Routing& next);

}  // namespace ff::cluster
