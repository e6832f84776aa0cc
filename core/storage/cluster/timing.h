// The times that members and managers live by, all on CLOCK_BOOTTIME. Any clock may run up to 10 %
// fast or slow, so two clocks differ by at most 11 : 9; each pair of times below that two machines
// count for themselves leaves more room than that.
#pragma once

#include <cstdint>

#include "platform/base/clock.h"

namespace ff::cluster {

// How often a node reports, when it has no news.
constexpr int64_t kHeartbeatNs = kSecond;

// A node of which no report has come for so long (T) has failed; counted by the manager, from
// receipt. A new primary waits as long before it fails anyone, since the nodes' last reports may
// have gone to the one before.
constexpr int64_t kFailNs = 10 * kSecond;

// A node serves for so long after it *sent* the last heartbeat that was answered (T/2).
constexpr int64_t kServeNs = kFailNs / 2;

// A primary acts for so long after it *sent* the last renewal of its lease that took effect.
constexpr int64_t kPrimaryNs = 3 * kSecond;
constexpr int64_t kRenewNs = kSecond;

// Another manager takes over when it has seen the same lease for so long, unrenewed.
constexpr int64_t kTakeOverNs = kPrimaryNs / 4 * 5;

static_assert(kServeNs * 11 < kFailNs * 9);
static_assert(kPrimaryNs * 11 < kTakeOverNs * 9);

}  // namespace ff::cluster
