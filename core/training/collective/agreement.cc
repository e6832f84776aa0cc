// agreement.cc: who coordinates a ballot, and when it is decided.
#include "training/collective/agreement.h"

#include <utility>

#include "platform/base/check.h"
#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

void append_vote(std::string& to, const Agreement::Vote& vote) {
  append_le(to, vote.ranks);
  append_le(to, vote.port);
}

Agreement::Vote read_vote(MessageReader& reader) {
  Agreement::Vote vote;
  vote.ranks = reader.read<uint64_t>();
  vote.port = reader.read<uint32_t>();
  return vote;
}

}  // namespace

Agreement::Agreement(std::vector<RankSet> nodes, uint32_t self, Send send)
    : self_(self),
      send_(std::move(send)),
      members_(std::move(nodes)),
      lost_(members_.size(), false),
      heard_(members_.size()) {}

uint32_t Agreement::coordinator() const {
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (members_[node] != 0 && !lost_[node]) return node;
  }
  return self_;
}

bool Agreement::all_joined(uint32_t ballot) const {
  FF_CHECK(is_of_joining(ballot));
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (decisions_[ballot - 1][node].ranks != 0 && decisions_[ballot][node].ranks == 0)
      return false;
  }
  return true;
}

void Agreement::vote(const Vote& own) {
  active_ = true;
  heard_[self_].vote = own;
  announce();
  decide_if_settled(false);
}

std::string Agreement::message_of(Kind kind, uint32_t node, const Vote& vote) const {
  std::string message;
  append_le(message, ballot());
  append_le(message, uint32_t{kind});
  append_le(message, node);
  append_vote(message, vote);
  return message;
}

// Tells the coordinator where this node stands.
void Agreement::announce() {
  if (coordinator() == self_) return;
  const auto& own = heard_[self_].vote;
  send_(coordinator(), message_of(own ? kVote : kPending, self_, own.value_or(Vote{})));
}

Result<void> Agreement::handle(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto about = reader.read<uint32_t>(), kind = reader.read<uint32_t>();
  const uint32_t of = kind == kDecision ? node : reader.read<uint32_t>();
  std::vector<Vote> votes(kind == kDecision ? members_.size() : 1);
  for (Vote& vote : votes) vote = read_vote(reader);
  if (!reader.at_end() || kind > kDecision || about > ballot() || of >= members_.size()) {
    return fail(Errc::corrupt, "a malformed vote arrived");
  }
  // Of a past ballot: adopt() has sent the decision.
  if (about < ballot() || is_excluded()) return {};
  if (kind == kDecision) {
    active_ = true;
    adopt(std::move(votes));
  } else if (of != node) {
    if (!lost_[node]) hear_successor(node, of, static_cast<Kind>(kind), votes.front());
  } else {
    active_ = true;
    if (members_[node] != 0 && !lost_[node]) {
      heard_[node].entered = true;
      if (kind == kVote) heard_[node].vote = votes.front();
    }
  }
  decide_if_settled(false);
  return {};
}

void Agreement::lose(uint32_t node) {
  if (lost_[node] || node == self_) return;
  const uint32_t before = coordinator();
  lost_[node] = true;
  if (is_excluded()) return;
  for (Heard& heard : heard_) heard.successors.erase(node);
  if (coordinator() != before) {
    if (active_) announce();
    pass_on_all();
  } else if (successors_.contains(node)) {
    pass_on(node);
  }
  decide_if_settled(false);
}

void Agreement::report_successor(uint32_t node, uint32_t ballot, const std::optional<Vote>& vote) {
  successors_[node] = {.ballot = ballot, .vote = vote};
  pass_on(node);
  decide_if_settled(false);
}

void Agreement::remove_successor(uint32_t node) {
  if (successors_.erase(node) == 0) return;
  pass_on(node);
  decide_if_settled(false);
}

// Tells the coordinator where a successor stands. One that is ahead has acted on a decision that
// its lost leader alone knew, or that is on its way to the coordinator as well: it has no vote
// here.
void Agreement::pass_on(uint32_t node) {
  if (is_excluded()) return;
  Kind kind = kPending;
  Vote vote;
  const auto found = successors_.find(node);
  if (found == successors_.end()) {
    kind = kGone;
  } else if (found->second.ballot > ballot()) {
    kind = lost_[node] ? kVote : kPending;
  } else if (found->second.ballot == ballot() && found->second.vote) {
    kind = kVote;
    vote = *found->second.vote;
  }
  if (kind == kVote) active_ = true;
  if (coordinator() == self_) return hear_successor(self_, node, kind, vote);
  send_(coordinator(), message_of(kind, node, vote));
}

void Agreement::pass_on_all() {
  for (const auto& [node, successor] : successors_) pass_on(node);
}

void Agreement::hear_successor(uint32_t from, uint32_t node, Kind kind, const Vote& vote) {
  auto& successors = heard_[node].successors;
  if (kind == kGone) {
    successors.erase(from);
    return;
  }
  successors[from] = kind == kVote ? std::optional(vote) : std::nullopt;
  if (kind == kVote) active_ = true;
}

std::optional<Agreement::Vote> Agreement::successor_vote(uint32_t node) const {
  const Heard& heard = heard_[node];
  // There is none, or the lost leader should have joined.
  if (members_[node] == 1 || (is_of_joining(ballot()) && has_rank(members_[node], 0)))
    return Vote{};
  for (const auto& [from, vote] : heard.successors) {
    if (vote) return vote;
  }
  return heard.given_up ? std::optional<Vote>(std::in_place) : std::nullopt;
}

bool Agreement::misses_successor(uint32_t node) const {
  return active_ && !is_excluded() && coordinator() == self_ && members_[node] != 0 &&
         lost_[node] && heard_[node].successors.empty() && !successor_vote(node);
}

void Agreement::give_up(uint32_t node) {
  heard_[node].given_up = true;
  decide_if_settled(false);
}

void Agreement::decide_if_settled(bool is_over) {
  if (is_excluded() || coordinator() != self_ || !active_) return;
  bool all_voted = true, all_entered = true, refused = false;
  std::vector<Vote> votes(members_.size());
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (members_[node] == 0) continue;
    const Heard& heard = heard_[node];
    all_entered = all_entered && (node == self_ || lost_[node] || heard.entered);
    const std::optional<Vote> vote = lost_[node] ? successor_vote(node) : heard.vote;
    all_voted = all_voted && vote.has_value();
    if (!vote) continue;
    votes[node] = *vote;
    refused = refused || vote->ranks == 0;
  }
  const bool is_void = is_of_joining(ballot()) && refused && all_entered;
  if (all_voted || is_void || is_over) adopt(std::move(votes));
}

// Sends it to all first: should this node end now, the others know what it may have acted on.
void Agreement::adopt(std::vector<Vote> votes) {
  const uint32_t decided = ballot();
  std::string message;
  append_le(message, decided);
  append_le(message, uint32_t{kDecision});
  for (const Vote& vote : votes) append_vote(message, vote);
  decisions_.push_back(std::move(votes));
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (members_[node] != 0 && node != self_) send_(node, message);
  }
  for (uint32_t node = 0; node < members_.size() && !is_of_joining(decided); node++) {
    members_[node] = decisions_[decided][node].ranks;
  }
  heard_.assign(members_.size(), {});
  active_ = !is_of_joining(decided) || !all_joined(decided);
  if (is_excluded()) return;
  if (active_) announce();
  pass_on_all();
}

}  // namespace ff::collective
