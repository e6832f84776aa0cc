// manager.cc: what is heard of nodes, and the changes that follow.
#include "storage/cluster/manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/transition.h"

namespace ff::cluster {

namespace {

// What leaves a target where it is, as long as nothing newer is known of it.
Local unmoved(State state) {
  switch (state) {
    case State::serving:
    case State::waiting: return Local::uptodate;
    case State::syncing: return Local::online;
    case State::lastsrv:
    case State::offline: return Local::offline;
  }
  return Local::offline;
}

Result<void> check_text(std::string_view what, std::string_view text) {
  if (text.size() <= kTextMax) return {};
  return fail(Errc::refused, "{} of {} bytes (the limit is {})", what, text.size(), kTextMax);
}

// Of what a node says of itself; it is written down and shown to operators.
Result<void> check_node(const Node& node) {
  if (node.id == 0) return fail(Errc::refused, "a heartbeat of node 0");
  if (node.addresses.size() > kAddressesMax || node.disks.size() > kDisksMax) {
    return fail(Errc::refused, "node {} has {} addresses and {} disks (the limits are {} and {})",
                node.id, node.addresses.size(), node.disks.size(), kAddressesMax, kDisksMax);
  }
  FF_TRY(check_text("the name of a node", node.name));
  FF_TRY(check_text("the domain of a node", node.domain));
  for (const std::string& address : node.addresses) FF_TRY(check_text("an address", address));
  std::set<DiskId> ids;
  for (const Disk& disk : node.disks) {
    FF_TRY(check_text("the path of a disk", disk.path));
    if (!ids.insert(disk.id).second) {
      return fail(Errc::refused, "node {} has two disks {}", node.id, disk.id);
    }
  }
  return {};
}

// Whether it says what the last one said, but for how far copies have come.
bool same_news(const Seen& seen, const Heartbeat& beat) {
  if (seen.node != beat.node || seen.targets.size() != beat.targets.size()) return false;
  return std::ranges::all_of(beat.targets, [&](const TargetReport& report) {
    const auto last = seen.targets.find(report.target);
    return last != seen.targets.end() && last->second.local == report.local &&
           last->second.chain_version == report.chain_version;
  });
}

// How long a target that its predecessor could not reach stays out, at first and at most: twice as
// long each time, until it has been reached for so long.
constexpr int64_t kCutFirstNs = 10 * kSecond;
constexpr int64_t kCutLastNs = 300 * kSecond;
constexpr int64_t kCutForgottenNs = 600 * kSecond;

Error newer(NodeId node, std::string what) {
  Error error =
      fail(Errc::failed, "node {} holds {}: this manager's database is older than its cluster",
           node, what);
  error.hint =
      "Start the manager on the newest copy of its database, or let it take over what the nodes "
      "hold: ff admin adopt.";
  return error;
}

}  // namespace

Manager::Manager(Routing routing, int64_t now_ns)
    : routing_(std::move(routing)), since_ns_(now_ns) {
  FF_CHECK(!routing_.cluster.empty());
  for (const auto& [id, chain] : routing_.chains) note_chain(chain);
}

void Manager::note_chain(const Chain& chain) {
  for (const Target& target : chain.targets) chains_of_[target.node].insert(chain.id);
}

Result<void> Manager::check_newer(const Heartbeat& beat) {
  if (beat.routing_version > routing_.version) {
    halted_ = newer(beat.node.id, fmt::format("routing {}, and {} is the newest here",
                                              beat.routing_version, routing_.version));
  }
  for (const TargetReport& report : beat.targets) {
    const Chain* const chain = routing_.chain(report.chain);
    const uint64_t own = chain == nullptr ? 0 : chain->version;
    if (report.chain_version <= own) continue;
    halted_ = newer(beat.node.id, fmt::format("chain {} in version {}, and {} is the newest here",
                                              report.chain, report.chain_version, own));
  }
  if (halted_) return *halted_;
  return {};
}

Result<void> Manager::admit(const Heartbeat& beat) {
  if (halted_) return *halted_;
  FF_TRY(check_node(beat.node));
  const NodeId id = beat.node.id;
  if (!beat.cluster.empty() && beat.cluster != routing_.cluster) {
    return fail(Errc::refused, "node {} belongs to cluster {}, and this is cluster {}", id,
                printable(beat.cluster), routing_.cluster);
  }
  if (beat.cluster.empty() && (beat.routing_version > 0 || !beat.targets.empty())) {
    return fail(Errc::refused, "node {} holds routing of no cluster", id);
  }
  const Node* const known = routing_.node(id);
  const auto found = seen_.find(id);
  const uint64_t generation = std::max(known == nullptr ? 0 : known->generation,
                                       found == seen_.end() ? 0 : found->second.generation);
  if (beat.node.generation < generation) {
    return fail(Errc::refused,
                "node {} has been started again since: this process is its {}., "
                "and the newest is its {}.",
                id, beat.node.generation, generation);
  }
  const bool same = found != seen_.end() && found->second.generation == beat.node.generation;
  if (same && beat.sequence <= found->second.sequence) {
    return fail(Errc::refused, "node {}: report {} came after report {}", id, beat.sequence,
                found->second.sequence);
  }
  if (known == nullptr && found == seen_.end() && seen_.size() >= kNodesMax) {
    return fail(Errc::refused, "there are {} nodes already", seen_.size());
  }
  return check_newer(beat);
}

Result<HeartbeatAnswer> Manager::heartbeat(Heartbeat beat, int64_t now_ns) {
  const NodeId id = beat.node.id;
  FF_CHECK(!must_wait(id));
  FF_TRY(admit(beat));
  Seen& seen = seen_[id];
  news_ = news_ || !same_news(seen, beat);
  if (seen.generation != beat.node.generation) {
    if (seen.generation > 0) seen.restarts++;
    seen.since_ns = now_ns;
  }
  seen.generation = beat.node.generation;
  seen.sequence = beat.sequence;
  seen.heard_ns = now_ns;
  seen.routing_version = beat.routing_version;
  seen.node = std::move(beat.node);
  seen.targets.clear();
  for (const TargetReport& report : beat.targets) {
    seen.targets[report.target] = report;
    if (report.size) sizes_[report.target] = *report.size;
  }
  note_cuts(beat, now_ns);
  seen.disks.clear();
  for (DiskUse& use : beat.disks) {
    if (use.trouble.size() > kTextMax) use.trouble.resize(kTextMax);
    seen.disks[use.disk] = std::move(use);
  }
  return HeartbeatAnswer{routing_.since(beat.routing_version, kAnswerBytes), predecessors(id)};
}

std::vector<Predecessor> Manager::predecessors(NodeId node) const {
  std::vector<Predecessor> confirmed;
  const auto own = chains_of_.find(node);
  if (own == chains_of_.end()) return confirmed;
  for (const ChainId id : own->second) {
    const Chain& chain = routing_.chains.at(id);
    uint64_t known = UINT64_MAX;  // to all before that serve
    for (const Target& target : chain.targets) {
      if (target.state != State::serving) break;
      if (target.node == node && known != UINT64_MAX) confirmed.push_back({target.id, known});
      const TargetReport* const told = report(target);
      known = std::min(known, told == nullptr ? 0 : told->chain_version);
    }
  }
  return confirmed;
}

const Seen* Manager::seen(NodeId node) const {
  const auto found = seen_.find(node);
  return found == seen_.end() ? nullptr : &found->second;
}

bool Manager::alive(NodeId node, int64_t now_ns) const {
  const Seen* const known = seen(node);
  return now_ns - (known == nullptr ? since_ns_ : known->heard_ns) <= kFailNs;
}

const TargetReport* Manager::report(const Target& target) const {
  const Seen* const node = seen(target.node);
  if (node == nullptr) return nullptr;
  const auto found = node->targets.find(target.id);
  return found == node->targets.end() ? nullptr : &found->second;
}

const TargetReport* Manager::fresh_report(const Chain& chain, const Target& target) const {
  const TargetReport* const last = report(target);
  return last != nullptr && last->chain_version == chain.version ? last : nullptr;
}

Local Manager::local_of(const Chain& chain, const Target& target, int64_t now_ns) const {
  if (!alive(target.node, now_ns)) return Local::offline;
  if (target.state == State::lastsrv && fenced(chain, now_ns)) return Local::offline;
  if (seen(target.node) == nullptr) return unmoved(target.state);
  // A node that reports none of its targets, or not this one, has just started: none serves.
  if (report(target) == nullptr) return Local::offline;
  const TargetReport* const fresh = fresh_report(chain, target);
  return fresh == nullptr ? unmoved(target.state) : fresh->local;
}

bool Manager::wanted_out(const Target& target) const {
  const Node* const node = routing_.node(target.node);
  return target.draining || (node != nullptr && node->draining);
}

// What is to be out stops, unless it is the last that serves.
void Manager::set_stops(Chain& chain) const {
  auto serving = std::ranges::count(chain.targets, State::serving, &Target::state);
  for (auto target = chain.targets.rbegin(); target != chain.targets.rend(); ++target) {
    const bool out = wanted_out(*target) || held_out(target->id);
    target->stop = out && target->state != State::lastsrv;
    if (target->state != State::serving || !target->stop) continue;
    target->stop = serving > 1;
    if (target->stop) serving--;
  }
}

Chain Manager::next(const Chain& chain, int64_t now_ns) const {
  Chain marked = chain;
  std::vector<Local> locals;
  bool others_serve = false;  // for certain, and go on
  for (Target& target : marked.targets) {
    locals.push_back(local_of(chain, target, now_ns));
    const TargetReport* const fresh = fresh_report(chain, target);
    const bool up = fresh != nullptr && locals.back() != Local::offline;
    if (up) target.created = true;
    if (up && !target.stop && target.state == State::serving) others_serve = true;
  }
  for (size_t i = 0; i < locals.size() && !others_serve; i++) {
    // It stopped because it was told to, and may be the last by now: it stays, and goes on.
    const Target& target = marked.targets[i];
    if (!target.stop || target.state != State::serving) continue;
    if (alive(target.node, now_ns) && report(target) != nullptr) locals[i] = Local::online;
  }
  Chain after = step(marked, locals);
  for (Target& target : after.targets) {
    const Target& before = *find_target(chain, target.id);
    const bool wrote = before.state == State::serving || before.state == State::syncing;
    const bool writes = target.state == State::serving || target.state == State::syncing;
    if (wrote && !writes) {
      const Target has = with_holding(chain, before);
      target.held = has.held;
      target.wrote = has.wrote;
      target.chunks = has.chunks;
      target.bytes = has.bytes;
    }
  }
  age_aside(after);
  set_stops(after);
  after.version = chain.version + (after.targets == chain.targets ? 0 : 1);
  return after;
}

void Manager::propose_nodes(Changes& changes) const {
  size_t bytes = 0;
  for (const auto& [id, seen] : seen_) {
    if (changes.size() >= kChangeMax || bytes >= kAnswerBytes) return;
    const Node* const known = routing_.node(id);
    Node node = seen.node;
    node.draining = known != nullptr && known->draining;
    node.changed = known == nullptr ? 0 : known->changed;
    if (known != nullptr && node == *known) continue;
    bytes += message_bytes(node);
    changes.nodes.push_back(std::move(node));
  }
}

// A target is told by the one before it, under the version that both hold. Whichever is further
// down the chain goes: what comes after it is reached from before it.
void Manager::note_cuts(const Heartbeat& beat, int64_t now_ns) {
  for (const Unreachable& told : beat.unreachable) {
    const Chain* const chain = routing_.chain(told.chain);
    if (chain == nullptr || chain->version != told.chain_version) continue;
    const Target* const from = find_target(*chain, told.from);
    const Target* const to = find_target(*chain, told.to);
    if (from == nullptr || to == nullptr || from->node != beat.node.id || from == to) continue;
    if (from->state != State::serving) continue;
    const Target& goes = from < to ? *to : *from;
    if (goes.state != State::serving && goes.state != State::syncing) continue;
    Cut& cut = cuts_[goes.id];
    if (cut.times > 0 && now_ns < cut.until_ns) continue;
    if (now_ns - cut.until_ns > kCutForgottenNs) cut.times = 0;
    cut.from = &goes == to ? from->id : to->id;
    cut.until_ns = now_ns + std::min(kCutFirstNs << std::min<uint64_t>(cut.times, 10), kCutLastNs);
    cut.times++;
    cut.out = true;
    news_ = true;
  }
}

bool Manager::held_out(TargetId id) const {
  const auto found = cuts_.find(id);
  return found != cuts_.end() && found->second.out;
}

Proposal Manager::propose(int64_t now_ns) {
  FF_CHECK(!pending_);
  for (auto& [id, cut] : cuts_) cut.out = now_ns < cut.until_ns;
  Proposal proposal;
  if (halted_) return proposal;
  propose_nodes(proposal.changes);
  for (const auto& [id, chain] : routing_.chains) {
    if (proposal.changes.size() >= kChangeMax) break;
    Chain after = next(chain, now_ns);
    if (after != chain) proposal.changes.chains.push_back(std::move(after));
  }
  if (proposal.empty()) return proposal;
  return pend(std::move(proposal));
}

// Gives the change its version, and checks it: nothing that breaks an invariant is written down.
Proposal Manager::pend(Proposal proposal, bool replaces) {
  Changes& changes = proposal.changes;
  FF_CHECK(!pending_ && changes.size() > 0 && changes.size() <= kChangeMax);
  changes.cluster = routing_.cluster;
  changes.since = routing_.version;
  changes.to = routing_.version + 1;
  for (Node& node : changes.nodes) node.changed = changes.to;
  for (Table& table : changes.tables) table.changed = changes.to;
  for (Chain& chain : changes.chains) {
    chain.changed = changes.to;
    const Chain* const before = routing_.chain(chain.id);
    if (before == nullptr) {
      FF_CHECK(broken_invariant(chain).empty());
      continue;
    }
    FF_CHECK(broken_invariant(*before, chain, replaces).empty());
    for (const Target& target : before->targets) {
      const Target* const after = find_target(chain, target.id);
      if (after == nullptr || after->state != target.state) involved_.insert(target.node);
    }
  }
  pending_ = std::move(proposal);
  return *pending_;
}

void Manager::applied() {
  FF_CHECK(pending_.has_value());
  const Result<void> applied = routing_.apply(pending_->changes);
  FF_CHECK(applied.ok());
  for (const Chain& chain : pending_->changes.chains) note_chain(chain);
  pending_.reset();
  involved_.clear();
}

}  // namespace ff::cluster
