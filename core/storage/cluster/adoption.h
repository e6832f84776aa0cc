// An old database was restored: nodes hold newer routing than the manager, which has halted. They
// offer theirs, and on the operator's word the newest becomes the cluster's. Raising the versions
// of the restored one would not do: it may take a target for serving that has missed writes since.
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
  // Whether the node has offered this version already.
  bool has(NodeId node, uint64_t version) const;
  // One page of a node's routing: from version 0 on, in order. Errc::refused: out of order.
  Result<void> offer(NodeId node, const Changes& page);
  // The newest that was offered, of the cluster of `own` and newer than it. Errc::refused: there is
  // none; a node that it names has not offered, so that an even newer one may be missing (unless
  // `without_absent`); `own` has what it lacks: things that were made after the restore.
  Result<Routing> newest(const Routing& own, bool without_absent) const;

 private:
  std::map<NodeId, Routing> pages_;     // of offers that are not complete
  std::map<NodeId, uint64_t> offered_;  // versions
  std::optional<Routing> newest_;
};

// What makes `own` be `next`, in writes of at most kChangeMax records. The version comes with the
// last one: cut short, the store is as old as before, and the manager halts again.
std::vector<Changes> steps_between(const Routing& own, const Routing& next);

}  // namespace ff::cluster
