// Shrinking a communicator after a failure, as MPI_Comm_shrink (ULFM) and ncclCommShrink do: the
// ranks that live agree who goes on, and join each other in a new communicator.
//
//   ballot 2n      who goes on: ranks that live and vote before the deadline
//   joining        by split.h, as one group
//   ballot 2n + 1  whether all have joined; if not, because one failed meanwhile, 2n + 2 follows
//
// On one host any rank decides, in the vote table. With several, the leader of each host, local
// rank 0, counts the votes of its host, and the leaders agree over their connections
// (node_ballots.h). When the leader of a host is gone, the lowest rank that is left on the host
// succeeds it: it reports to any leader that lives (successor.h).
//
// With several hosts, this is survived: the loss of any ranks at any time before or during a shrink
// (of leaders, of successors, of whole hosts), as long as one leader lives until the shrink is
// over. All ranks that get a new communicator get the same one; every other rank that lives gets an
// error, no later than the deadlines: operation_ns for ballot 2n, join_ns for joining, and some
// seconds each for the hosts to agree. A leader or successor that is stopped (SIGSTOP) is lost at
// these deadlines; if a leader is gone and the next rank stopped, its host does not go on. For a
// successor the others wait up to 5 s, or a quarter of operation_ns if that is less: so long takes
// the loss of a host with several ranks. A network that is cut in two makes two communicators, one
// of each part that has a leader.
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
  // on without this rank; Errc::unreachable: rank 0 of this host is gone, and its successor reaches
  // no other host; Errc::interrupted.
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
  Result<void> check_host() const;
  uint32_t leader() const;
  Error excluded() const;

  HostGroup& group_;
  const World* const world_;
  const StopToken& stop_;
  uint32_t ballot_ = 0;
  RankSet members_;  // of this host
};

}  // namespace ff::collective
