// vote_count.cc: votes of ranks that live.
#include "training/collective/vote_count.h"

#include <algorithm>

namespace ff::collective {

int64_t successor_grace_ns(const HostRank& self) {
  return std::min(5 * kSecond, self.operation_ns / 4);
}

RankSet all_ranks(uint32_t ranks) { return ~RankSet{0} >> (kHostRanksMax - ranks); }

std::optional<uint64_t> count_votes(HostGroup& group, uint32_t ballot, RankSet members,
                                    bool is_over) {
  const VoteTable votes = group.operations().votes();
  const bool joining = ballot % 2 == 1;
  RankSet voted = 0;
  bool is_missing = false;
  for (uint32_t rank = 0; rank < group.self().ranks; rank++) {
    if (!has_rank(members, rank)) continue;
    const auto vote = votes.vote_of(rank, ballot);
    const bool is_gone = group.is_gone(rank);
    if (joining && (is_gone || vote == false)) return kVoid;
    if (vote && !is_gone) voted |= RankSet{1} << rank;
    is_missing = is_missing || (!vote && !is_gone);
  }
  if (is_missing && !is_over) return std::nullopt;
  if (joining) return is_missing ? kVoid : kJoined;
  return voted;
}

}  // namespace ff::collective
