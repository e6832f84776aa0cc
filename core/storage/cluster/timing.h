// Timeouts of members and managers, all on CLOCK_BOOTTIME. Any clock may run up to 10 % fast or
// slow, so two clocks differ by at most 11 : 9; each pair of timeouts below that two machines
// measure independently has more margin than that.
#pragma once

#include <cstdint>

#include "platform/base/clock.h"

namespace ff::cluster {

// Heartbeat interval of a node that has nothing new to report.
constexpr int64_t kHeartbeatIntervalNs = kSecond;

// A node without a heartbeat for this time (T) has failed; measured by the manager from the
// receipt. A new primary waits as long before it declares any node failed, since the last
// heartbeats may have gone to its predecessor.
constexpr int64_t kNodeFailureNs = 10 * kSecond;

// Lease of a node: it serves for this time after it *sent* the last answered heartbeat (T/2).
constexpr int64_t kNodeLeaseNs = kNodeFailureNs / 2;

// Lease of the primary: it acts for this time after it *sent* the last successful renewal.
constexpr int64_t kPrimaryLeaseNs = 3 * kSecond;
constexpr int64_t kLeaseRenewNs = kSecond;

// Another manager takes over when the lease has not been renewed for this time.
constexpr int64_t kLeaseTakeoverNs = kPrimaryLeaseNs / 4 * 5;

static_assert(kNodeLeaseNs * 11 < kNodeFailureNs * 9);
static_assert(kPrimaryLeaseNs * 11 < kLeaseTakeoverNs * 9);

}  // namespace ff::cluster
