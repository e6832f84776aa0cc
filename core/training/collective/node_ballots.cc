// node_ballots.cc: from the votes of a host to the decisions of all.
#include "training/collective/node_ballots.h"

#include "training/collective/vote_count.h"

namespace ff::collective {

namespace {

std::vector<RankSet> ranks_of_nodes(const World& world) {
  std::vector<RankSet> ranks;
  for (const WorldNode& node : world.nodes) ranks.push_back(all_ranks(node.ranks()));
  return ranks;
}

}  // namespace

NodeBallots::NodeBallots(Loop& loop, HostGroup& group, const World& world, uint32_t self,
                         Links links, std::unique_ptr<net::Listener> listener)
    : loop_(loop),
      group_(group),
      self_(self),
      nodes_(static_cast<uint32_t>(world.nodes.size())),
      links_(std::move(links)),
      agreement_(ranks_of_nodes(world), self, links_.send),
      host_(group, self),
      successor_links_(
          loop, std::move(listener), world, self,
          {.report = [this](uint32_t node, const SuccessorReport& report) { hear(node, report); },
           .lost =
               [this](uint32_t node) {
                 successors_.erase(node);
                 agreement_.remove_successor(node);
                 poll();
               }}),
      gate_(loop) {}

void NodeBallots::poll() {
  // Ranks vote in a ballot only once the decision before it is stored.
  const uint32_t ballot = agreement_.ballot();
  const bool current = host_.stored() == ballot && !agreement_.is_excluded();
  if (current && (agreement_.is_active() || host_.has_vote())) {
    if (timed_ != ballot) {
      timed_ = ballot;
      began_ns_ = loop_.now_ns();
      silent_ = 0;
      missing_ns_.clear();
    }
    check_deadlines();
  }
  if (host_.stored() < agreement_.ballot() && !storing_) {
    storing_ = true;
    gate_.spawn(store_decisions());
  }
  update_all();
}

void NodeBallots::check_deadlines() {
  const uint32_t ballot = agreement_.ballot();
  const int64_t waited_ns = loop_.now_ns() - began_ns_;
  const int64_t limit_ns = host_.limit_ns();
  if (!agreement_.has_voted()) {
    if (const auto counted = host_.count(waited_ns >= limit_ns)) agreement_.vote(*counted);
  }
  if (agreement_.ballot() == ballot) check_successors();
  if (agreement_.ballot() != ballot) return;
  if (agreement_.coordinator() == self_) {
    if (waited_ns >= limit_ns + kVoteGraceNs) agreement_.expire();
  } else if (waited_ns >= limit_ns + (2 + silent_) * kVoteGraceNs) {
    silent_++;
    agreement_.lose(agreement_.coordinator());
  }
}

// Gives up those that do not come.
void NodeBallots::check_successors() {
  const uint32_t ballot = agreement_.ballot();
  for (uint32_t node = 0; node < nodes_ && agreement_.ballot() == ballot; node++) {
    if (!agreement_.misses_successor(node)) {
      missing_ns_.erase(node);
      continue;
    }
    const int64_t since_ns = missing_ns_.try_emplace(node, loop_.now_ns()).first->second;
    if (loop_.now_ns() - since_ns >= successor_grace_ns(group_.self())) agreement_.give_up(node);
  }
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

// The other nodes have each decision before a rank of this host, or a successor, acts on it.
Task<void> NodeBallots::store_decisions() {
  while (host_.stored() < agreement_.ballot()) {
    co_await links_.flush();
    const uint32_t ballot = host_.stored();
    host_.store(agreement_.decision(ballot),
                is_of_joining(ballot) && agreement_.all_joined(ballot));
    update_all();
    // The others decide without this host, and what it knows is out of date soon.
    if (agreement_.is_excluded()) successor_links_.refuse_all();
  }
  storing_ = false;
}

void NodeBallots::hear(uint32_t node, const SuccessorReport& report) {
  const auto [found, is_new] = successors_.try_emplace(node);
  Successor& successor = found->second;
  if (is_new) successor.next = report.ballot;
  successor.report = report;
  pass_on(node, successor);
  poll();
}

void NodeBallots::pass_on(uint32_t node, Successor& successor) {
  const SuccessorReport& report = successor.report;
  successor.is_ahead = report.ballot > agreement_.ballot();
  if (!successor.is_ahead && report.mark != mark_before(report.ballot)) {
    successor.differs = true;
    agreement_.remove_successor(node);
    successor_links_.send(node, SuccessorMethod::differs, {});
  } else if (!successor.differs) {
    const auto vote = successor.is_ahead ? std::nullopt : report.vote;
    agreement_.report_successor(node, report.ballot, vote);
  }
}

uint64_t NodeBallots::mark_before(uint32_t ballot) const {
  if (ballot == 0) return 0;
  const uint32_t last = ballot - 1;
  const bool joined = is_of_joining(last) && agreement_.all_joined(last);
  return mark_of(last, agreement_.decision(last), joined);
}

void NodeBallots::update_all() {
  for (auto& [node, successor] : successors_) update(node, successor);
}

// Sends the successor what it does not know yet.
void NodeBallots::update(uint32_t node, Successor& successor) {
  if (successor.is_ahead && successor.report.ballot <= agreement_.ballot()) {
    pass_on(node, successor);
  }
  if (successor.differs) return;
  const uint32_t stored = host_.stored();
  for (; successor.next < stored; successor.next++) {
    const uint32_t ballot = successor.next;
    SuccessorDecision decision{.ballot = ballot, .nodes = agreement_.decision(ballot)};
    decision.all_joined = is_of_joining(ballot) && agreement_.all_joined(ballot);
    successor_links_.send(node, SuccessorMethod::decision, encode_decision(decision));
  }
  if (!agreement_.is_active() || agreement_.ballot() != stored || successor.active > stored) return;
  successor.active = stored + 1;
  std::string message;
  append_le(message, stored);
  successor_links_.send(node, SuccessorMethod::active, message);
}

Task<void> NodeBallots::close() {
  co_await successor_links_.close();
  co_await gate_.close(fail(Errc::interrupted, "the communicator is closed"));
}

}  // namespace ff::collective
