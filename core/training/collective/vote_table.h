// Votes of the ranks of a host, in memory that they share: how they agree which of them go on after
// a failure (shrink.h). Ballots are numbered from 0. A rank votes in one after the other, and the
// first decision of a ballot counts: whoever is killed, every rank that reads it reads the same.
//
//   vote_table := votes decisions ceased exclusion members_ballot  members ports  (of each node)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "training/collective/collective_request.h"
#include "training/collective/world.h"

namespace ff::collective {

// Local ranks as bits.
using RankSet = uint64_t;
static_assert(kHostRanksMax <= 64);
inline bool has_rank(RankSet ranks, uint32_t rank) { return (ranks >> rank & 1) != 0; }

// Whether the ballot is about joining: every second one (shrink.h).
inline bool is_of_joining(uint32_t ballot) { return ballot % 2 == 1; }

// The ranks of one node that go on, and a port that is free on its host.
struct NodeMembers {
  RankSet ranks = 0;
  uint32_t port = 0;
};

// Why the ranks of a host do not go on with those of others.
enum class HostExclusion : uint32_t {
  none,
  late,     // the other hosts go on without this one
  differs,  // the other hosts did not get a decision that this one has acted on
  cut_off,  // the leader of this host is gone, and its successor has reached no other host
};

class VoteTable {
 public:
  static constexpr uint32_t kBallotsMax = 1024;
  static size_t bytes();
  // Zeroed memory is an empty table.
  explicit VoteTable(void* memory) : data_(static_cast<Data*>(memory)) {}

  void vote(uint32_t rank, uint32_t ballot, bool yes);
  std::optional<bool> vote_of(uint32_t rank, uint32_t ballot) const;
  // `decision` is not 0.
  void decide(uint32_t ballot, uint64_t decision);
  std::optional<uint64_t> decision(uint32_t ballot) const;
  // The first ballot without a decision.
  uint32_t decided() const;

  // With several hosts, where one rank decides alone: who goes on, stored before the decision;
  // nothing once those of a later ballot are stored.
  void set_members(uint32_t ballot, const std::vector<NodeMembers>& nodes);
  std::optional<std::vector<NodeMembers>> members(uint32_t ballot, size_t nodes) const;
  // The first reason counts.
  void exclude(HostExclusion why);
  HostExclusion exclusion() const;
  // The rank decides nothing any more: the next one may do it.
  void cease(uint32_t rank) { data_->ceased.fetch_or(RankSet{1} << rank); }
  bool has_ceased(uint32_t rank) const { return has_rank(data_->ceased.load(), rank); }

 private:
  struct Data {
    std::atomic<uint64_t> votes[kHostRanksMax];    // (ballot + 1) * 2, and 1 for yes
    std::atomic<uint64_t> decisions[kBallotsMax];  // 0: none yet
    std::atomic<uint64_t> ceased;                  // ranks
    std::atomic<uint32_t> exclusion;
    std::atomic<uint32_t> members_ballot;  // ballot + 1; 0: while they change
    std::atomic<uint64_t> members[kWorldRanksMax];
    std::atomic<uint32_t> ports[kWorldRanksMax];
  };

  Data* data_;
};

}  // namespace ff::collective
