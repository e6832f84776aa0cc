// The transition table of storage.md: from the public states of one chain's targets, and what is
// held true of each locally, to their next public states. A pure function; the manager calls it
// until nothing changes, and publishes every change.
//
//   local             now                        condition                             next
//   any               lastsrv                    another serves                        offline
//   uptodate, online  lastsrv                    none serves                           serving
//   offline           serving                    another serves after this step        offline
//   offline           serving                    none does; the first in order         lastsrv
//   offline           lastsrv                                                          lastsrv
//   offline           syncing, waiting, offline                                        offline
//   uptodate          serving, syncing                                                 serving
//   online            serving                                                          serving
//   online            syncing, waiting           predecessor serving                   syncing
//   online            syncing, waiting           predecessor not serving               waiting
//   uptodate, online  offline                                                          waiting
//   uptodate          waiting                                                          waiting
//
// The predecessor is the one in the order after the step: serving, lastsrv, syncing, waiting,
// offline, each in the order from before. So at most one target syncs.
#pragma once

#include <span>
#include <string>

#include "storage/cluster/routing.h"

namespace ff::cluster {

// `locals` of the targets in their order. The version is one higher when anything changed.
Chain step(const Chain& chain, std::span<const Local> locals);

// What must hold of every chain, and of each change of one whatever its cause: a target serves or
// is lastsrv, never both, and one syncs at most, only behind one that serves; the order is kept;
// versions never fall; targets come and go by an operator only (`replaced`). Empty when all does,
// else what does not.
std::string broken_invariant(const Chain& chain);
std::string broken_invariant(const Chain& before, const Chain& after, bool replaced = false);

}  // namespace ff::cluster
