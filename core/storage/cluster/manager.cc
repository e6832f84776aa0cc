// manager.cc: processing of heartbeats, and the changes that follow.
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

// The local state that does not change the public state; assumed as long as there is no current
// report.
LocalTargetState assumed_state(TargetState state) {
  switch (state) {
    case TargetState::serving:
    case TargetState::waiting: return LocalTargetState::uptodate;
    case TargetState::syncing: return LocalTargetState::online;
    case TargetState::lastsrv:
    case TargetState::offline: return LocalTargetState::offline;
  }
  return LocalTargetState::offline;
}

Result<void> check_text(std::string_view what, std::string_view text) {
  if (text.size() <= kTextMax) return {};
  return fail(Errc::refused, "{} has {} bytes (limit: {})", what, text.size(), kTextMax);
}

// Checks the description of a node, which is stored and shown to operators.
Result<void> check_node(const NodeInfo& node) {
  if (node.id == 0) return fail(Errc::refused, "invalid node id 0");
  if (node.addresses.size() > kAddressesMax || node.disks.size() > kDisksMax) {
    return fail(Errc::refused, "node {} has {} addresses and {} disks (limits: {} and {})", node.id,
                node.addresses.size(), node.disks.size(), kAddressesMax, kDisksMax);
  }
  FF_TRY(check_text("the name of a node", node.name));
  FF_TRY(check_text("the domain of a node", node.domain));
  for (const std::string& address : node.addresses) FF_TRY(check_text("an address", address));
  std::set<DiskId> ids;
  for (const DiskInfo& disk : node.disks) {
    FF_TRY(check_text("the path of a disk", disk.path));
    if (!ids.insert(disk.id).second) {
      return fail(Errc::refused, "node {} reports disk {} twice", node.id, disk.id);
    }
  }
  return {};
}

// Whether the heartbeat repeats the last one, except for the progress of copies.
bool same_report(const NodeStatus& status, const Heartbeat& beat) {
  if (status.node != beat.node || status.targets.size() != beat.targets.size()) return false;
  return std::ranges::all_of(beat.targets, [&](const TargetReport& report) {
    const auto last = status.targets.find(report.target);
    return last != status.targets.end() && last->second.local == report.local &&
           last->second.chain_version == report.chain_version;
  });
}

// How long a target stays out that its predecessor could not reach: doubled each time, reset after
// kIsolationResetNs without a report.
constexpr int64_t kIsolationFirstNs = 10 * kSecond;
constexpr int64_t kIsolationLastNs = 300 * kSecond;
constexpr int64_t kIsolationResetNs = 600 * kSecond;

Error newer_routing_error(NodeId node, std::string what) {
  Error error =
      fail(Errc::failed, "node {} has {}: this manager's database is older than its cluster", node,
           what);
  error.hint =
      "Start the manager on the newest copy of its database, or adopt the routing of the nodes: ff "
      "admin adopt.";
  return error;
}

}  // namespace

Manager::Manager(Routing routing, int64_t now_ns)
    : routing_(std::move(routing)), since_ns_(now_ns) {
  FF_CHECK(!routing_.cluster.empty());
  for (const auto& [id, chain] : routing_.chains) index_chain(chain);
}

void Manager::index_chain(const Chain& chain) {
  for (const Target& target : chain.targets) chains_by_node_[target.node].insert(chain.id);
}

Result<void> Manager::halt_if_newer(const Heartbeat& beat) {
  if (beat.routing_version > routing_.version) {
    halted_ =
        newer_routing_error(beat.node.id, fmt::format("routing version {}, but the manager has {}",
                                                      beat.routing_version, routing_.version));
  }
  for (const TargetReport& report : beat.targets) {
    const Chain* const chain = routing_.chain(report.chain);
    const uint64_t own = chain == nullptr ? 0 : chain->version;
    if (report.chain_version <= own) continue;
    halted_ = newer_routing_error(
        beat.node.id, fmt::format("chain {} in version {}, but the manager has {}", report.chain,
                                  report.chain_version, own));
  }
  if (halted_) return *halted_;
  return {};
}

Result<void> Manager::validate(const Heartbeat& beat) {
  if (halted_) return *halted_;
  FF_TRY(check_node(beat.node));
  const NodeId id = beat.node.id;
  if (!beat.cluster.empty() && beat.cluster != routing_.cluster) {
    return fail(Errc::refused, "node {} belongs to cluster {}, but this is cluster {}", id,
                printable(beat.cluster), routing_.cluster);
  }
  if (beat.cluster.empty() && (beat.routing_version > 0 || !beat.targets.empty())) {
    return fail(Errc::refused, "node {} has routing but no cluster id", id);
  }
  const NodeInfo* const known = routing_.node(id);
  const auto found = node_status_.find(id);
  const uint64_t generation = std::max(known == nullptr ? 0 : known->generation,
                                       found == node_status_.end() ? 0 : found->second.generation);
  if (beat.node.generation < generation) {
    return fail(Errc::refused,
                "node {} has been restarted: this process has generation {}, the newest has {}", id,
                beat.node.generation, generation);
  }
  const bool same = found != node_status_.end() && found->second.generation == beat.node.generation;
  if (same && beat.sequence <= found->second.sequence) {
    return fail(Errc::refused, "node {}: heartbeat {} arrived after heartbeat {}", id,
                beat.sequence, found->second.sequence);
  }
  if (known == nullptr && found == node_status_.end() && node_status_.size() >= kNodesMax) {
    return fail(Errc::refused, "the cluster has {} nodes already", node_status_.size());
  }
  return halt_if_newer(beat);
}

Result<HeartbeatResponse> Manager::heartbeat(Heartbeat beat, int64_t now_ns) {
  const NodeId id = beat.node.id;
  FF_CHECK(!must_wait(id));
  FF_TRY(validate(beat));
  NodeStatus& status = node_status_[id];
  changed_ = changed_ || !same_report(status, beat);
  if (status.generation != beat.node.generation) {
    if (status.generation > 0) status.restarts++;
    status.generation_since_ns = now_ns;
  }
  status.generation = beat.node.generation;
  status.sequence = beat.sequence;
  status.last_heartbeat_ns = now_ns;
  status.routing_version = beat.routing_version;
  status.node = std::move(beat.node);
  status.targets.clear();
  for (const TargetReport& report : beat.targets) {
    status.targets[report.target] = report;
    if (report.size) sizes_[report.target] = *report.size;
  }
  record_unreachable(beat, now_ns);
  status.disks.clear();
  for (DiskUsage& use : beat.disks) {
    if (use.error.size() > kTextMax) use.error.resize(kTextMax);
    status.disks[use.disk] = std::move(use);
  }
  return HeartbeatResponse{routing_.delta_since(beat.routing_version, kAnswerBytes),
                           predecessors(id)};
}

std::vector<Predecessor> Manager::predecessors(NodeId node) const {
  std::vector<Predecessor> confirmed;
  const auto own = chains_by_node_.find(node);
  if (own == chains_by_node_.end()) return confirmed;
  for (const ChainId id : own->second) {
    const Chain& chain = routing_.chains.at(id);
    uint64_t known = UINT64_MAX;  // version confirmed by all serving predecessors
    for (const Target& target : chain.targets) {
      if (target.state != TargetState::serving) break;
      if (target.node == node && known != UINT64_MAX) confirmed.push_back({target.id, known});
      const TargetReport* const reported = report(target);
      known = std::min(known, reported == nullptr ? 0 : reported->chain_version);
    }
  }
  return confirmed;
}

const NodeStatus* Manager::node_status(NodeId node) const {
  const auto found = node_status_.find(node);
  return found == node_status_.end() ? nullptr : &found->second;
}

bool Manager::alive(NodeId node, int64_t now_ns) const {
  const NodeStatus* const known = node_status(node);
  return now_ns - (known == nullptr ? since_ns_ : known->last_heartbeat_ns) <= kNodeFailureNs;
}

const TargetReport* Manager::report(const Target& target) const {
  const NodeStatus* const node = node_status(target.node);
  if (node == nullptr) return nullptr;
  const auto found = node->targets.find(target.id);
  return found == node->targets.end() ? nullptr : &found->second;
}

const TargetReport* Manager::current_report(const Chain& chain, const Target& target) const {
  const TargetReport* const last = report(target);
  return last != nullptr && last->chain_version == chain.version ? last : nullptr;
}

LocalTargetState Manager::local_state_of(const Chain& chain, const Target& target,
                                         int64_t now_ns) const {
  if (!alive(target.node, now_ns)) return LocalTargetState::offline;
  if (target.state == TargetState::lastsrv && fenced(chain, now_ns))
    return LocalTargetState::offline;
  if (node_status(target.node) == nullptr) return assumed_state(target.state);
  // A node that does not report the target has just started, so the target does not serve.
  if (report(target) == nullptr) return LocalTargetState::offline;
  const TargetReport* const fresh = current_report(chain, target);
  return fresh == nullptr ? assumed_state(target.state) : fresh->local;
}

bool Manager::is_draining(const Target& target) const {
  const NodeInfo* const node = routing_.node(target.node);
  return target.draining || (node != nullptr && node->draining);
}

// Sets `stop` of targets that must leave, except for the last serving one.
void Manager::update_stop_flags(Chain& chain) const {
  auto serving = std::ranges::count(chain.targets, TargetState::serving, &Target::state);
  for (auto target = chain.targets.rbegin(); target != chain.targets.rend(); ++target) {
    const bool out = is_draining(*target) || is_isolated(target->id);
    target->stop = out && target->state != TargetState::lastsrv;
    if (target->state != TargetState::serving || !target->stop) continue;
    target->stop = serving > 1;
    if (target->stop) serving--;
  }
}

Chain Manager::next_chain(const Chain& chain, int64_t now_ns) const {
  Chain marked = chain;
  std::vector<LocalTargetState> locals;
  bool others_serve = false;  // certainly, and without stopping
  for (Target& target : marked.targets) {
    locals.push_back(local_state_of(chain, target, now_ns));
    const TargetReport* const fresh = current_report(chain, target);
    const bool up = fresh != nullptr && locals.back() != LocalTargetState::offline;
    if (up) target.created = true;
    if (up && !target.stop && target.state == TargetState::serving) others_serve = true;
  }
  for (size_t i = 0; i < locals.size() && !others_serve; i++) {
    // It stopped on request and may be the last one by now: then it stays and continues.
    const Target& target = marked.targets[i];
    if (!target.stop || target.state != TargetState::serving) continue;
    if (alive(target.node, now_ns) && report(target) != nullptr)
      locals[i] = LocalTargetState::online;
  }
  Chain after = next_chain_state(marked, locals);
  for (Target& target : after.targets) {
    const Target& before = *find_target(chain, target.id);
    const bool wrote = before.state == TargetState::serving || before.state == TargetState::syncing;
    const bool writes =
        target.state == TargetState::serving || target.state == TargetState::syncing;
    if (wrote && !writes) {
      const Target has = with_current_data(chain, before);
      target.complete_version = has.complete_version;
      target.written_version = has.written_version;
      target.chunks = has.chunks;
      target.bytes = has.bytes;
    }
  }
  expire_set_aside(after);
  update_stop_flags(after);
  after.version = chain.version + (after.targets == chain.targets ? 0 : 1);
  return after;
}

void Manager::propose_nodes(RoutingDelta& changes) const {
  size_t bytes = 0;
  for (const auto& [id, status] : node_status_) {
    if (changes.size() >= kChangeMax || bytes >= kAnswerBytes) return;
    const NodeInfo* const known = routing_.node(id);
    NodeInfo node = status.node;
    node.draining = known != nullptr && known->draining;
    node.changed = known == nullptr ? 0 : known->changed;
    if (known != nullptr && node == *known) continue;
    bytes += message_bytes(node);
    changes.nodes.push_back(std::move(node));
  }
}

// The predecessor reports its successor under a version that both hold. The target further down the
// chain leaves, because its successors can be reached from its predecessor.
void Manager::record_unreachable(const Heartbeat& beat, int64_t now_ns) {
  for (const UnreachableTarget& reported : beat.unreachable) {
    const Chain* const chain = routing_.chain(reported.chain);
    if (chain == nullptr || chain->version != reported.chain_version) continue;
    const Target* const from = find_target(*chain, reported.from);
    const Target* const to = find_target(*chain, reported.to);
    if (from == nullptr || to == nullptr || from->node != beat.node.id || from == to) continue;
    if (from->state != TargetState::serving) continue;
    const Target& goes = from < to ? *to : *from;
    if (goes.state != TargetState::serving && goes.state != TargetState::syncing) continue;
    Isolation& isolation = isolations_[goes.id];
    if (isolation.times > 0 && now_ns < isolation.until_ns) continue;
    if (now_ns - isolation.until_ns > kIsolationResetNs) isolation.times = 0;
    isolation.from = &goes == to ? from->id : to->id;
    isolation.until_ns =
        now_ns +
        std::min(kIsolationFirstNs << std::min<uint64_t>(isolation.times, 10), kIsolationLastNs);
    isolation.times++;
    isolation.out = true;
    changed_ = true;
  }
}

bool Manager::is_isolated(TargetId id) const {
  const auto found = isolations_.find(id);
  return found != isolations_.end() && found->second.out;
}

Proposal Manager::propose(int64_t now_ns) {
  FF_CHECK(!pending_);
  for (auto& [id, isolation] : isolations_) isolation.out = now_ns < isolation.until_ns;
  Proposal proposal;
  if (halted_) return proposal;
  propose_nodes(proposal.changes);
  for (const auto& [id, chain] : routing_.chains) {
    if (proposal.changes.size() >= kChangeMax) break;
    Chain after = next_chain(chain, now_ns);
    if (after != chain) proposal.changes.chains.push_back(std::move(after));
  }
  if (proposal.empty()) return proposal;
  return set_pending(std::move(proposal));
}

// Assigns the version of the change, and checks that it keeps all invariants before it is stored.
Proposal Manager::set_pending(Proposal proposal, bool replaces) {
  RoutingDelta& changes = proposal.changes;
  FF_CHECK(!pending_ && changes.size() > 0 && changes.size() <= kChangeMax);
  changes.cluster = routing_.cluster;
  changes.since = routing_.version;
  changes.to = routing_.version + 1;
  for (NodeInfo& node : changes.nodes) node.changed = changes.to;
  for (ChainTable& table : changes.tables) table.changed = changes.to;
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
      if (after == nullptr || after->state != target.state) waiting_nodes_.insert(target.node);
    }
  }
  pending_ = std::move(proposal);
  return *pending_;
}

void Manager::applied() {
  FF_CHECK(pending_.has_value());
  const Result<void> applied = routing_.apply(pending_->changes);
  FF_CHECK(applied.ok());
  for (const Chain& chain : pending_->changes.chains) index_chain(chain);
  pending_.reset();
  waiting_nodes_.clear();
}

}  // namespace ff::cluster
