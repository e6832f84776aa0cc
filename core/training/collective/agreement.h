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
// that knows a decision of the lost coordinator has sent it before.
//
// A node speaks here through its leader, and is lost with it. Its ranks can go on nevertheless if a
// successor (successor.h) reports to any member that is not lost, which passes that on:
//
//   member      -> coordinator   of a lost node: its successor is here, has voted, or is gone
//
// The coordinator waits for the successors of lost members until their votes are there, or it gives
// them up. They never take part themselves: a lost leader is lost for good.
//
// A state machine without time or input and output, so that tests can fail nodes between any two
// messages. Messages of one node to another arrive in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  // `nodes`: the ranks of each; bit 0 is the leader.
  Agreement(std::vector<RankSet> nodes, uint32_t self, Send send);

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
  bool is_excluded() const { return members_[self_] == 0; }
  uint32_t coordinator() const;

  void vote(const Vote& own);
  // Errc::corrupt: the message is malformed.
  Result<void> handle(uint32_t node, ByteView message);
  // The node takes part no more.
  void lose(uint32_t node);
  // The coordinator waits no longer for votes.
  void expire() { decide_if_settled(true); }

  // The successor of another node's leader has reported here: it is in this ballot.
  void report_successor(uint32_t node, uint32_t ballot, const std::optional<Vote>& vote);
  // It reports here no more.
  void remove_successor(uint32_t node);
  // This node coordinates, and knows of no successor of that lost member although it needs one.
  bool misses_successor(uint32_t node) const;
  // Waits for it no longer in this ballot.
  void give_up(uint32_t node);

 private:
  enum Kind : uint32_t { kPending, kVote, kGone, kDecision };
  struct Heard {
    bool entered = false;
    std::optional<Vote> vote = {};
    // Of a lost node: what its successors have voted, by the member they report to. The last word
    // of one may arrive after the first of the next one, which reports to another member.
    std::map<uint32_t, std::optional<Vote>> successors = {};
    bool given_up = false;
  };
  struct Successor {
    uint32_t ballot = 0;
    std::optional<Vote> vote = {};
  };
  // Of a lost member: its vote, or nothing while it is awaited.
  std::optional<Vote> successor_vote(uint32_t node) const;

  std::string message_of(Kind kind, uint32_t node, const Vote& vote) const;
  void announce();
  void pass_on(uint32_t node);
  void pass_on_all();
  void hear_successor(uint32_t from, uint32_t node, Kind kind, const Vote& vote);
  void decide_if_settled(bool is_over);
  void adopt(std::vector<Vote> votes);

  const uint32_t self_;
  const Send send_;
  std::vector<std::vector<Vote>> decisions_;
  std::vector<RankSet> members_;  // by node: its ranks that go on; 0: no member
  std::vector<bool> lost_;
  std::vector<Heard> heard_;                  // in the ballot
  std::map<uint32_t, Successor> successors_;  // that report here, by node
  bool active_ = false;
};

}  // namespace ff::collective
