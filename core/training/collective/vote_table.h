// Votes of the ranks of a host, in memory that they share: how they agree which of them go on after
// a failure (shrink.h). Ballots are numbered from 0. A rank votes in one after the other, and the
// first decision of a ballot counts: whoever is killed, every rank that reads it reads the same.
//
//   vote_table := votes decisions excluded members_ballot  members ports  (of each node)
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
  RankSet ranks = 0;  // with local rank 0, or none
  uint32_t port = 0;
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

  // With several hosts, where local rank 0 decides alone: who goes on, stored before the decision;
  // nothing once those of a later ballot are stored.
  void set_members(uint32_t ballot, const std::vector<NodeMembers>& nodes);
  std::optional<std::vector<NodeMembers>> members(uint32_t ballot, size_t nodes) const;
  // The other hosts go on without this one.
  void set_excluded() { data_->excluded.store(1, std::memory_order_release); }
  bool is_excluded() const { return data_->excluded.load(std::memory_order_acquire) != 0; }

 private:
  struct Data {
    std::atomic<uint64_t> votes[kHostRanksMax];      // (ballot + 1) * 2, and 1 for yes
    std::atomic<uint64_t> decisions[kBallotsMax];    // 0: none yet
    std::atomic<uint32_t> excluded, members_ballot;  // ballot + 1; 0: while they change
    std::atomic<uint64_t> members[kWorldRanksMax];
    std::atomic<uint32_t> ports[kWorldRanksMax];
  };

  Data* data_;
};

}  // namespace ff::collective
