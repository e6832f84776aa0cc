// The successor of the leader of a host. The leader (local rank 0) has the connections to other
// hosts. When it is gone, the lowest rank of the host that is left speaks for the host in the
// ballots of a shrink (shrink.h): it connects to the leader of any other host, proves with the
// job's key that it belongs to the job, and names the communicator and its host
// (successor_links.h). It reports the votes of its host, and stores the decisions, from where the
// lost leader ended (host_ballots.h). If its connection ends, it connects again, also to another
// leader; if it is gone itself, the next rank succeeds it. The new communicator has a leader of its
// own.
//
// It never decides alone: without another leader that is alive, its host does not go on.
#pragma once

#include <atomic>

#include "platform/base/clock.h"
#include "training/collective/host_group.h"
#include "training/collective/peers.h"
#include "training/collective/world.h"

namespace ff::collective {

struct SuccessorPlace {
  const World& world;
  const Network& network;
};
// Called by a thread of every rank but 0 once the job has failed. Waits until all lower ranks of
// the host are gone, then is their successor, until the shrink is over for this host or `stopping`.
void stand_by_as_successor(HostGroup& group, SuccessorPlace place, Clock& clock,
                           const std::atomic<bool>& stopping);

}  // namespace ff::collective
