// Shrinking a communicator after a failure, as MPI_Comm_shrink (ULFM) and ncclCommShrink do: the
// ranks that live agree who goes on, and join each other in a new communicator.
//
//   ballot 2n      who goes on: ranks that live and vote before the deadline
//   joining        by split.h, as one group
//   ballot 2n + 1  whether all have joined; if not, because one failed meanwhile, 2n + 2 follows
//
// On one host any rank decides, in the vote table. With several, local rank 0 of each host counts
// the votes of its host, and these agree over their connections (node_ballots.h): a host whose
// rank 0 is gone cannot go on.
#pragma once

#include <memory>
#include <vector>

#include "platform/base/stop_token.h"
#include "training/collective/host_group.h"
#include "training/collective/split.h"

namespace ff::collective {

class Shrink {
 public:
  Shrink(HostGroup& group, const World* world, const StopToken& stop);

  // Waits for the ballot who goes on; the choices for plan_split(). Errc::deadline: the others go
  // on without this rank; Errc::unreachable: rank 0 of this host is gone, and there are other
  // hosts; Errc::interrupted.
  Result<std::vector<SplitChoice>> choose_members();
  // While this rank joins: an error once the joining is void.
  Result<void> check_joining();
  // Waits for the ballot whether all have joined.
  Result<bool> confirm(bool joined);
  // How many ballots there were. Equal on all ranks that go on.
  uint32_t ballots() const { return ballot_; }

 private:
  Result<uint64_t> decide(bool yes, int64_t within_ns);
  std::optional<uint64_t> decision(bool is_over);
  Result<void> check_leader() const;
  Error excluded() const;

  HostGroup& group_;
  const World* const world_;
  const StopToken& stop_;
  uint32_t ballot_ = 0;
  RankSet members_;  // of this host
};

}  // namespace ff::collective
