// member.cc: local states, derived from the disks and the routing.
#include "storage/cluster/member.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/cluster/timing.h"

namespace ff::cluster {

namespace {

// Whether the chain relies on a target in this state.
bool chain_counts_on(TargetState state) {
  return state == TargetState::serving || state == TargetState::syncing ||
         state == TargetState::waiting;
}

}  // namespace

Member::Member(NodeInfo self, Routing held) : self_(std::move(self)), routing_(std::move(held)) {
  FF_CHECK(self_.id != 0);
  index_own_targets();
}

void Member::index_own_targets() {
  std::map<TargetId, OwnTarget> found;
  for (const auto& [id, chain] : routing_.chains) {
    for (const Target& target : chain.targets) {
      if (target.node != self_.id) continue;
      const auto known = own_targets_.find(target.id);
      OwnTarget& own = found[target.id];
      if (known != own_targets_.end()) own = known->second;
      own.chain = id;
    }
  }
  own_targets_ = std::move(found);
}

const Member::OwnTarget* Member::own(TargetId id) const {
  const auto found = own_targets_.find(id);
  return found == own_targets_.end() ? nullptr : &found->second;
}

std::optional<ChainId> Member::chain_of(TargetId id) const {
  const OwnTarget* const known = own(id);
  return known == nullptr ? std::nullopt : std::optional(known->chain);
}

const Target* Member::target(TargetId id, const Chain*& chain) const {
  const OwnTarget* const known = own(id);
  if (known == nullptr) return nullptr;
  chain = routing_.chain(known->chain);
  return find_target(*chain, id);
}

std::vector<TargetId> Member::targets_to_create() const {
  std::vector<TargetId> missing;
  for (const auto& [id, own] : own_targets_) {
    const Chain* chain = nullptr;
    if (!own.usable && !target(id, chain)->created) missing.push_back(id);
  }
  return missing;
}

void Member::set_usable(TargetId id, bool usable) {
  const auto found = own_targets_.find(id);
  if (found == own_targets_.end()) return;
  OwnTarget& own = found->second;
  own.usable = usable;
  if (usable) return;
  // It may serve again only once the chain has changed: a report of its failure may be in flight.
  own.offline_version = routing_.chain(own.chain)->version;
  own.copied_version = 0;
}

void Member::set_copied(TargetId id, uint64_t chain_version) {
  const auto found = own_targets_.find(id);
  if (found != own_targets_.end()) found->second.copied_version = chain_version;
}

void Member::set_progress(TargetId id, uint64_t copied, uint64_t to_copy) {
  const auto found = own_targets_.find(id);
  if (found == own_targets_.end()) return;
  found->second.copied = copied;
  found->second.to_copy = to_copy;
}

void Member::set_size(TargetId id, TargetSize size) {
  const auto found = own_targets_.find(id);
  if (found != own_targets_.end()) found->second.size = size;
}

void Member::set_unreachable(TargetId id, std::optional<UnreachableTarget> unreachable_report) {
  const auto found = own_targets_.find(id);
  if (found != own_targets_.end()) found->second.unreachable_report = unreachable_report;
}

std::vector<UnreachableTarget> Member::unreachable() const {
  std::vector<UnreachableTarget> reports;
  for (const auto& [id, own] : own_targets_) {
    if (own.unreachable_report) reports.push_back(*own.unreachable_report);
  }
  return reports;
}

LocalTargetState Member::local_state(TargetId id) const {
  const Chain* chain = nullptr;
  const Target* const at = target(id, chain);
  if (at == nullptr) return LocalTargetState::offline;
  const OwnTarget& known = *own(id);
  const bool counted_on = at->state == TargetState::serving || at->state == TargetState::syncing;
  if (!known.usable || at->stop) return LocalTargetState::offline;
  if (counted_on && known.offline_version == chain->version) return LocalTargetState::offline;
  if (at->state == TargetState::serving) return LocalTargetState::uptodate;
  const bool copied = at->state == TargetState::syncing && known.copied_version == chain->version;
  return copied ? LocalTargetState::uptodate : LocalTargetState::online;
}

std::vector<TargetReport> Member::targets() const {
  std::vector<TargetReport> reports;
  if (!rejoined_) return reports;
  for (const auto& [id, own] : own_targets_) {
    reports.push_back({.target = id,
                       .chain = own.chain,
                       .local = local_state(id),
                       .chain_version = routing_.chain(own.chain)->version,
                       .copied = own.copied,
                       .to_copy = own.to_copy,
                       .size = own.size});
  }
  return reports;
}

Heartbeat Member::next_heartbeat() {
  Heartbeat beat{.cluster = routing_.cluster,
                 .node = self_,
                 .sequence = ++sequence_,
                 .routing_version = routing_.version,
                 .targets = targets(),
                 .disks = disk_usage_,
                 .unreachable = unreachable()};
  for (const TargetReport& report : beat.targets) {
    if (report.local == LocalTargetState::offline)
      own_targets_[report.target].offline_version = report.chain_version;
  }
  return beat;
}

bool Member::has_unreported_changes() const {
  if (!answered_ || !rejoined_ || self_ != reported_self_ || unreachable() != reported_unreachable_)
    return true;
  // Progress of a copy can wait for the next regular heartbeat.
  return !std::ranges::equal(
      targets(), reported_, [](const TargetReport& a, const TargetReport& b) {
        return a.target == b.target && a.local == b.local && a.chain_version == b.chain_version;
      });
}

bool Member::expects_routing_changes() const {
  return std::ranges::any_of(own_targets_, [&](const auto& entry) {
    return std::ranges::any_of(routing_.chain(entry.second.chain)->targets, [](const Target& at) {
      return at.state == TargetState::syncing || at.state == TargetState::waiting;
    });
  });
}

Result<void> Member::on_response(const Heartbeat& sent, int64_t sent_ns,
                                 const HeartbeatResponse& answer) {
  FF_TRY(routing_.apply(answer.changes));
  index_own_targets();
  update_serving_since();
  for (const Predecessor& before : answer.predecessors) {
    const auto found = own_targets_.find(before.target);
    if (found == own_targets_.end() || found->second.serving_since == 0) continue;
    if (before.confirmed_version >= found->second.serving_since)
      found->second.predecessors_confirmed = true;
  }
  if (!answer.changes.complete) return {};
  rejoined_ = rejoined_ || std::ranges::none_of(own_targets_, [&](const auto& entry) {
                const Chain* chain = nullptr;
                return chain_counts_on(target(entry.first, chain)->state);
              });
  lease_start_ns_ = answered_ ? std::max(lease_start_ns_, sent_ns) : sent_ns;
  answered_ = true;
  reported_ = sent.targets;
  reported_unreachable_ = sent.unreachable;
  reported_self_ = sent.node;
  return {};
}

// Tracks since when each target serves; the head of a chain has no predecessors to wait for.
void Member::update_serving_since() {
  for (auto& [id, own] : own_targets_) {
    const Chain* chain = nullptr;
    const Target* const at = target(id, chain);
    if (at->state != TargetState::serving) {
      own.serving_since = 0;
      own.predecessors_confirmed = false;
      continue;
    }
    if (own.serving_since == 0) own.serving_since = chain->version;
    if (at == &chain->targets.front()) own.predecessors_confirmed = true;
  }
}

bool Member::has_lease(int64_t now_ns) const {
  return answered_ && now_ns - lease_start_ns_ < kNodeLeaseNs;
}

bool Member::may_write(TargetId id, int64_t now_ns) const {
  if (!rejoined_ || !has_lease(now_ns)) return false;
  const Chain* chain = nullptr;
  const Target* const at = target(id, chain);
  if (at == nullptr || (at->state != TargetState::serving && at->state != TargetState::syncing))
    return false;
  return local_state(id) != LocalTargetState::offline;
}

bool Member::may_read(TargetId id, int64_t now_ns) const {
  if (!may_write(id, now_ns)) return false;
  return own(id)->predecessors_confirmed;
}

}  // namespace ff::cluster
