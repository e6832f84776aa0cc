// shrink.cc: the votes of one rank.
#include "training/collective/shrink.h"

#include <fmt/format.h>

#include "platform/base/units.h"
#include "training/collective/vote_count.h"

namespace ff::collective {

namespace {

constexpr int64_t kVotePollNs = 10 * kMillisecond;  // the longest time until a lost rank is noticed
// For the nodes to agree: longer than they wait for each other (node_ballots.cc).
constexpr int64_t kNodesNs = 10 * kVoteGraceNs;

}  // namespace

Shrink::Shrink(HostGroup& group, const World* world, const StopToken& stop)
    : group_(group), world_(world), stop_(stop), members_(all_ranks(group.self().ranks)) {}

Result<std::vector<SplitChoice>> Shrink::choose_members() {
  if (ballot_ + 2 > VoteTable::kBallotsMax) {
    return fail(Errc::failed, "the ranks could not join each other after {} attempts", ballot_ / 2);
  }
  const uint32_t ballot = ballot_;
  FF_TRY(members_, decide(true, group_.self().operation_ns));
  if (!has_rank(members_, group_.self().rank)) return excluded();
  std::vector<NodeMembers> nodes = {{.ranks = members_}};
  if (world_ != nullptr) {
    auto stored = group_.operations().votes().members(ballot, world_->nodes.size());
    if (!stored) return excluded();
    nodes = std::move(*stored);
  }
  std::vector<SplitChoice> choices;
  for (size_t node = 0; node < nodes.size(); node++) {
    const uint32_t ranks = world_ != nullptr ? world_->nodes[node].ranks() : group_.self().ranks;
    for (uint32_t rank = 0; rank < ranks; rank++) {
      const bool goes_on = has_rank(nodes[node].ranks, rank);
      choices.push_back({.color = goes_on ? 0 : kNoColor, .port = nodes[node].port});
    }
  }
  return choices;
}

Result<void> Shrink::check_joining() {
  const auto decided = decision(false);
  if (decided == kVoid) return fail(Errc::unreachable, "a rank is gone before all have joined");
  if (decided) return {};
  return check_host();
}

Result<bool> Shrink::confirm(bool joined) {
  FF_TRY(const uint64_t decided, decide(joined, group_.self().join_ns + kVoteGraceNs));
  return decided == kJoined;
}

// Votes in the current ballot, and waits for its decision.
Result<uint64_t> Shrink::decide(bool yes, int64_t within_ns) {
  OperationTable& operations = group_.operations();
  operations.votes().vote(group_.self().rank, ballot_, yes);
  operations.wake(OperationTable::Futex::done);
  group_.wake_leader();
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + within_ns;
  for (;;) {
    const int64_t now_ns = clock.steady_ns();
    if (const auto decided = decision(now_ns >= until_ns)) {
      ballot_++;
      return *decided;
    }
    FF_TRY(check_host());
    FF_TRY(stop_.check());
    if (now_ns >= until_ns + kNodesNs) {
      return fail(Errc::deadline, "{} does not say which ranks go on", group_.name_of(leader()));
    }
    const auto is_decided = [&] { return operations.votes().decision(ballot_).has_value(); };
    (void)operations.wait(OperationTable::Futex::done, clock, now_ns + kVotePollNs, is_decided);
  }
}

// Of the current ballot.
std::optional<uint64_t> Shrink::decision(bool is_over) {
  OperationTable& operations = group_.operations();
  VoteTable votes = operations.votes();
  if (auto decided = votes.decision(ballot_); decided || world_ != nullptr) return decided;
  const auto counted = count_votes(group_, ballot_, members_, is_over);
  if (!counted) return std::nullopt;
  votes.decide(ballot_, *counted);
  operations.wake(OperationTable::Futex::done);
  return votes.decision(ballot_);
}

// With several hosts: whether this one can still go on.
Result<void> Shrink::check_host() const {
  if (world_ == nullptr) return {};
  const VoteTable votes = group_.operations().votes();
  if (votes.decision(ballot_)) return {};
  const HostExclusion why = votes.exclusion();
  if (why == HostExclusion::none) return {};
  if (why == HostExclusion::late) return excluded();
  Error error = fail(
      Errc::unreachable, "{} is gone, and had the connections of this host: {}", group_.name_of(0),
      why == HostExclusion::cut_off
          ? "no other host answers the next rank: they go on without this host, or are gone too"
          : "the other hosts did not get its last decision, and go on without this host");
  error.hint = "Read the output of that process; then start the job again.";
  return error;
}

// The lowest rank of the host that is not gone.
uint32_t Shrink::leader() const {
  uint32_t rank = 0;
  while (rank < group_.self().rank && group_.is_gone(rank)) rank++;
  return rank;
}

Error Shrink::excluded() const {
  Error error =
      fail(Errc::deadline, "the other ranks go on without {}: it was not there within {}",
           group_.name_of(group_.self().rank), format_duration(group_.self().operation_ns));
  error.hint = "End this process.";
  return error;
}

}  // namespace ff::collective
