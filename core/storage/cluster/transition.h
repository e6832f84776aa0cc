// The transition table of storage.md: maps the public states of the targets of a chain, and their
// local states, to the next public states. A pure function; the manager calls it until nothing
// changes and publishes every change.
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
// The predecessor is determined in the order after the step: serving, lastsrv, syncing, waiting,
// offline, each in the previous order. So at most one target is syncing.
#pragma once

#include <span>
#include <string>

#include "storage/cluster/routing.h"

namespace ff::cluster {

// `locals`: local states in the order of the targets. Increments the version when anything changed.
Chain next_chain_state(const Chain& chain, std::span<const LocalTargetState> locals);

// Checks the invariants of a chain, and of any change of it: a target serves or is lastsrv, never
// both; at most one is syncing, only behind a serving one; the order is by state; versions
// increase; targets come and go by the operator only (`replaced`). Returns an empty string, or the
// violated invariant.
std::string broken_invariant(const Chain& chain);
std::string broken_invariant(const Chain& before, const Chain& after, bool replaced = false);

}  // namespace ff::cluster
