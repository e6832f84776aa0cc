// How the nodes of a job agree on ballots although nodes fail meanwhile: every node that gets the
// decision of a ballot gets the same one (uniform agreement, as MPI_Comm_agree of ULFM). Ballots
// are numbered from 0: in an even one the members vote who goes on, in the odd one after it whether
// they have joined each other (shrink.h).
//
// The coordinator of a ballot is the lowest member that is not lost:
//
//   member      -> coordinator   pending or vote: on entering the ballot, and to a new coordinator
//   coordinator -> all           decision: the votes that count
//   member      -> all           the same decision, before the member acts on it
//
// A new coordinator decides only once it has heard all members that it has not lost: one of them
// that knows a decision of the lost coordinator has sent it before. A state machine without time
// or input and output, so that tests can fail nodes between any two messages. Messages of one node
// to another arrive in order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "training/collective/vote_table.h"

namespace ff::collective {

class Agreement {
 public:
  // Even ballots: the members of a node. Odd ballots: ranks = 1 if they have joined, else 0.
  using Vote = NodeMembers;
  using Send = std::function<void(uint32_t node, const std::string& message)>;
  Agreement(uint32_t nodes, uint32_t self, Send send);

  // The first ballot without a decision; those before it have one, with the vote of each node (0 of
  // those that did not count).
  uint32_t ballot() const { return static_cast<uint32_t>(decisions_.size()); }
  const std::vector<Vote>& decision(uint32_t ballot) const { return decisions_[ballot]; }
  // Of an odd ballot: whether all its members have joined.
  bool all_joined(uint32_t ballot) const;
  // Some node has entered the ballot.
  bool is_active() const { return active_; }
  bool has_voted() const { return heard_[self_].vote.has_value(); }
  // The others go on without this node.
  bool is_excluded() const { return !members_[self_]; }
  uint32_t coordinator() const;

  void vote(const Vote& own);
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, ByteView message);
  // The node takes part no more.
  void lose(uint32_t node);
  // The coordinator waits no longer for votes.
  void expire() { decide_if_settled(true); }

 private:
  enum Kind : uint32_t { kPending, kVote, kDecision };
  struct Heard {
    bool entered = false;
    std::optional<Vote> vote = {};
  };

  void announce();
  void decide_if_settled(bool is_over);
  void adopt(std::vector<Vote> votes);

  const uint32_t self_;
  const Send send_;
  std::vector<std::vector<Vote>> decisions_;
  std::vector<bool> members_, lost_;  // by node
  std::vector<Heard> heard_;          // in the ballot
  bool active_ = false;
};

}  // namespace ff::collective
