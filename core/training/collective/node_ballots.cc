// node_ballots.cc: from the votes of a host to the decisions of all.
#include "training/collective/node_ballots.h"

#include "training/collective/free_port.h"
#include "training/collective/vote_count.h"

namespace ff::collective {

NodeBallots::NodeBallots(Loop& loop, HostGroup& group, uint32_t nodes, uint32_t self, Links links)
    : loop_(loop),
      group_(group),
      self_(self),
      links_(std::move(links)),
      agreement_(nodes, self, links_.send),
      members_(all_ranks(group.self().ranks)),
      gate_(loop) {}

bool NodeBallots::has_local_vote() const {
  const VoteTable votes = group_.operations().votes();
  for (uint32_t rank = 0; rank < group_.self().ranks; rank++) {
    if (has_rank(members_, rank) && votes.vote_of(rank, agreement_.ballot())) return true;
  }
  return false;
}

void NodeBallots::poll() {
  // Ranks vote in a ballot only once the decision before it is stored.
  const uint32_t ballot = agreement_.ballot();
  const bool current = stored_ == ballot && !agreement_.is_excluded();
  if (current && (agreement_.is_active() || has_local_vote())) {
    if (timed_ != ballot) {
      timed_ = ballot;
      began_ns_ = loop_.now_ns();
      silent_ = 0;
    }
    check_deadlines();
  }
  if (stored_ < agreement_.ballot() && !storing_) {
    storing_ = true;
    gate_.spawn(store_decisions());
  }
}

void NodeBallots::check_deadlines() {
  const HostRank& self = group_.self();
  const uint32_t ballot = agreement_.ballot();
  const int64_t waited_ns = loop_.now_ns() - began_ns_;
  const int64_t limit_ns = is_of_joining(ballot) ? self.join_ns + kVoteGraceNs : self.operation_ns;
  if (!agreement_.has_voted()) vote(waited_ns >= limit_ns);
  if (agreement_.ballot() != ballot) return;
  if (agreement_.coordinator() == self_) {
    if (waited_ns >= limit_ns + kVoteGraceNs) agreement_.expire();
  } else if (waited_ns >= limit_ns + (2 + silent_) * kVoteGraceNs) {
    silent_++;
    agreement_.lose(agreement_.coordinator());
  }
}

// With the votes of this host, once they are there.
void NodeBallots::vote(bool is_over) {
  const uint32_t ballot = agreement_.ballot();
  const auto counted = count_votes(group_, ballot, members_, is_over);
  if (!counted) return;
  if (is_of_joining(ballot)) return agreement_.vote({.ranks = *counted == kJoined ? 1U : 0U});
  // Without its rank 0 the host has no connections.
  const auto port = has_rank(*counted, 0) ? find_free_port() : Result<uint16_t>(0);
  if (port && *port != 0) return agreement_.vote({.ranks = *counted, .port = *port});
  agreement_.vote({});
}

Result<void> NodeBallots::handle(uint32_t node, ByteView message) {
  FF_TRY(agreement_.handle(node, message));
  poll();
  return {};
}

void NodeBallots::lose(uint32_t node) {
  agreement_.lose(node);
  poll();
}

// The other nodes have each decision before a rank of this host acts on it.
Task<void> NodeBallots::store_decisions() {
  while (stored_ < agreement_.ballot()) {
    co_await links_.flush();
    store(stored_++);
  }
  storing_ = false;
}

void NodeBallots::store(uint32_t ballot) {
  OperationTable& operations = group_.operations();
  VoteTable votes = operations.votes();
  const std::vector<NodeMembers>& decided = agreement_.decision(ballot);
  if (is_of_joining(ballot)) {
    votes.decide(ballot, agreement_.all_joined(ballot) ? kJoined : kVoid);
  } else if (members_ = decided[self_].ranks; members_ == 0) {
    votes.set_excluded();
  } else {
    votes.set_members(ballot, decided);
    votes.decide(ballot, members_);
  }
  operations.wake(OperationTable::Futex::done);
}

Task<void> NodeBallots::close() {
  co_await gate_.close(fail(Errc::interrupted, "the communicator is closed"));
}

}  // namespace ff::collective
