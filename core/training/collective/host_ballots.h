// The ballots of a host that has agreed with others (shrink.h), in its vote table: the vote of the
// host, and what all hosts have decided. Used by one thread of the host: that of its leader
// (node_ballots.h), or of the leader's successor (successor.h), which continues where it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "training/collective/host_group.h"

namespace ff::collective {

class HostBallots {
 public:
  // `node`: of this host, in the World.
  HostBallots(HostGroup& group, uint32_t node);

  // Decisions that are stored; the ballot after them is the current one.
  uint32_t stored() const { return stored_; }
  // A rank has voted in the current ballot.
  bool has_vote() const;
  // How long the ranks have for it.
  int64_t limit_ns() const;
  // The vote of the host, once all its ranks have voted, or at the deadline: in an odd ballot the
  // ranks are 1 if all have joined, else 0.
  std::optional<NodeMembers> count(bool is_over) const;
  // The decision of the current ballot, and wakes the ranks: `nodes` go on, or all have joined.
  void store(const std::vector<NodeMembers>& nodes, bool all_joined);
  void exclude(HostExclusion why);
  // The ranks need no more decisions.
  bool is_over() const;
  // Of the last decision (mark_of()), where the world has so many nodes. 0: there is none.
  uint64_t mark(size_t nodes) const;

 private:
  HostGroup& group_;
  const uint32_t node_;
  RankSet members_;  // of this host
  uint32_t stored_;
};

// Tells decisions of a ballot apart: who goes on, or whether all have joined.
uint64_t mark_of(uint32_t ballot, const std::vector<NodeMembers>& nodes, bool all_joined);

}  // namespace ff::collective
