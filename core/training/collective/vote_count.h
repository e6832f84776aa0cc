// Counting the votes of a host in its vote table (vote_table.h).
#pragma once

#include <cstdint>
#include <optional>

#include "training/collective/host_group.h"

namespace ff::collective {

// Decisions of odd ballots: not all members have joined each other, or all have.
constexpr uint64_t kVoid = 1, kJoined = 2;
// How much longer one that collects votes waits than one that votes.
constexpr int64_t kVoteGraceNs = 2 * kSecond;
// How long the others wait for a sign of the successor of a leader that is gone (successor.h).
int64_t successor_grace_ns(const HostRank& self);

RankSet all_ranks(uint32_t ranks);

// Even ballots: those of `members` that live and have voted, once all that live have. Odd ballots:
// kJoined once all have joined, kVoid once one is gone or has not joined. `is_over`: without those
// that have not voted. Nothing: votes are missing.
std::optional<uint64_t> count_votes(HostGroup& group, uint32_t ballot, RankSet members,
                                    bool is_over);

}  // namespace ff::collective
