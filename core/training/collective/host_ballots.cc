// host_ballots.cc: between the vote table and whoever agrees with other hosts.
#include "training/collective/host_ballots.h"

#include "platform/simd/digest.h"
#include "training/collective/free_port.h"
#include "training/collective/vote_count.h"

namespace ff::collective {

HostBallots::HostBallots(HostGroup& group, uint32_t node)
    : group_(group),
      node_(node),
      members_(all_ranks(group.self().ranks)),
      stored_(group.operations().votes().decided()) {
  const VoteTable votes = group.operations().votes();
  for (uint32_t ballot = 0; ballot < stored_; ballot += 2) members_ = *votes.decision(ballot);
}

bool HostBallots::has_vote() const {
  const VoteTable votes = group_.operations().votes();
  for (uint32_t rank = 0; rank < group_.self().ranks; rank++) {
    if (has_rank(members_, rank) && votes.vote_of(rank, stored_)) return true;
  }
  return false;
}

int64_t HostBallots::limit_ns() const {
  const HostRank& self = group_.self();
  return is_of_joining(stored_) ? self.join_ns + kVoteGraceNs : self.operation_ns;
}

std::optional<NodeMembers> HostBallots::count(bool is_over) const {
  const auto counted = count_votes(group_, stored_, members_, is_over);
  if (!counted) return std::nullopt;
  if (is_of_joining(stored_)) return NodeMembers{.ranks = *counted == kJoined ? 1U : 0U};
  const auto port = *counted != 0 ? find_free_port() : Result<uint16_t>(0);
  if (!port || *port == 0) return NodeMembers{};
  return NodeMembers{.ranks = *counted, .port = *port};
}

void HostBallots::store(const std::vector<NodeMembers>& nodes, bool all_joined) {
  OperationTable& operations = group_.operations();
  VoteTable votes = operations.votes();
  const uint32_t ballot = stored_++;
  if (is_of_joining(ballot)) {
    votes.decide(ballot, all_joined ? kJoined : kVoid);
  } else if (members_ = nodes[node_].ranks; members_ == 0) {
    votes.exclude(HostExclusion::late);
  } else {
    votes.set_members(ballot, nodes);
    votes.decide(ballot, members_);
  }
  operations.wake(OperationTable::Futex::done);
}

void HostBallots::exclude(HostExclusion why) {
  group_.operations().votes().exclude(why);
  group_.operations().wake(OperationTable::Futex::done);
}

bool HostBallots::is_over() const {
  const VoteTable votes = group_.operations().votes();
  if (votes.exclusion() != HostExclusion::none || stored_ + 1 >= VoteTable::kBallotsMax)
    return true;
  return stored_ > 0 && is_of_joining(stored_ - 1) && votes.decision(stored_ - 1) == kJoined;
}

uint64_t HostBallots::mark(size_t nodes) const {
  if (stored_ == 0) return 0;
  const VoteTable votes = group_.operations().votes();
  const uint32_t last = stored_ - 1;
  if (is_of_joining(last)) return mark_of(last, {}, votes.decision(last) == kJoined);
  return mark_of(last, votes.members(last, nodes).value_or(std::vector<NodeMembers>()), false);
}

uint64_t mark_of(uint32_t ballot, const std::vector<NodeMembers>& nodes, bool all_joined) {
  if (is_of_joining(ballot)) return all_joined ? kJoined : kVoid;
  std::string bytes;
  for (const NodeMembers& one : nodes) {
    append_le(bytes, one.ranks);
    append_le(bytes, one.port);
  }
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(bytes)).digest;
  return load_le<uint64_t>(digest.bytes.data());
}

}  // namespace ff::collective
