// The story of chain/: three managers, three storage nodes with chunk stores on simulated disks,
// and programs that write, read and sync. Processes are killed and paused, machines lose power,
// links are cut, one way too, disks fail, clocks drift. At every moment:
//
// - there is an order of all updates that explains what programs have seen (chain_history.h): none
//   is done twice, none that was acknowledged is lost;
// - unless the last target of a chain has lost power: then at most what was not synced is lost;
// - what is read is what one update has written.
//
// Once all is healed, every update that is under way ends, every target serves again, and the
// replicas of a chain are equal.
#pragma once

#include "lab/scenario/story.h"

namespace ff::scenario {

Result<Outcome> run_chain(uint64_t seed);

}  // namespace ff::scenario
