// agreement.cc: who coordinates a ballot, and when it is decided.
#include "training/collective/agreement.h"

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

Agreement::Agreement(uint32_t nodes, uint32_t self, Send send)
    : self_(self),
      send_(std::move(send)),
      members_(nodes, true),
      lost_(nodes, false),
      heard_(nodes) {}

uint32_t Agreement::coordinator() const {
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (members_[node] && !lost_[node]) return node;
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

// Tells the coordinator where this node stands.
void Agreement::announce() {
  if (coordinator() == self_) return;
  const auto& own = heard_[self_].vote;
  std::string message;
  append_le(message, ballot());
  append_le(message, uint32_t{own ? kVote : kPending});
  append_vote(message, own.value_or(Vote{}));
  send_(coordinator(), message);
}

Result<void> Agreement::handle(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto about = reader.read<uint32_t>(), kind = reader.read<uint32_t>();
  std::vector<Vote> votes(kind == kDecision ? members_.size() : 1);
  for (Vote& vote : votes) vote = read_vote(reader);
  if (!reader.at_end() || kind > kDecision || about > ballot()) {
    return fail(Errc::corrupt, "a malformed vote arrived");
  }
  // Of a past ballot: adopt() has sent the decision.
  if (about < ballot() || is_excluded()) return {};
  active_ = true;
  if (kind == kDecision) {
    adopt(std::move(votes));
  } else if (members_[node] && !lost_[node]) {
    heard_[node].entered = true;
    if (kind == kVote) heard_[node].vote = votes.front();
  }
  decide_if_settled(false);
  return {};
}

void Agreement::lose(uint32_t node) {
  if (lost_[node] || node == self_) return;
  const uint32_t before = coordinator();
  lost_[node] = true;
  if (is_excluded()) return;
  if (coordinator() != before && active_) announce();
  decide_if_settled(false);
}

void Agreement::decide_if_settled(bool is_over) {
  if (is_excluded() || coordinator() != self_ || !active_) return;
  bool all_voted = true, all_entered = true, refused = false;
  std::vector<Vote> votes(members_.size());
  for (uint32_t node = 0; node < members_.size(); node++) {
    if (!members_[node]) continue;
    if (lost_[node]) {
      refused = true;
      continue;
    }
    const Heard& heard = heard_[node];
    all_entered = all_entered && (node == self_ || heard.entered);
    all_voted = all_voted && heard.vote.has_value();
    if (!heard.vote) continue;
    votes[node] = *heard.vote;
    refused = refused || heard.vote->ranks == 0;
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
    if (members_[node] && node != self_) send_(node, message);
  }
  for (uint32_t node = 0; node < members_.size() && !is_of_joining(decided); node++) {
    members_[node] = decisions_[decided][node].ranks != 0;
  }
  heard_.assign(members_.size(), {});
  active_ = !is_of_joining(decided) || !all_joined(decided);
  if (active_ && !is_excluded()) announce();
}

}  // namespace ff::collective
