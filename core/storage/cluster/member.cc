// member.cc: local states from what the disks hold and what the routing says.
#include "storage/cluster/member.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/cluster/timing.h"

namespace ff::cluster {

namespace {

// Somebody counts on it.
bool taken_part(State state) {
  return state == State::serving || state == State::syncing || state == State::waiting;
}

}  // namespace

Member::Member(Node self, Routing held) : self_(std::move(self)), routing_(std::move(held)) {
  FF_CHECK(self_.id != 0);
  find_own();
}

void Member::find_own() {
  std::map<TargetId, Own> found;
  for (const auto& [id, chain] : routing_.chains) {
    for (const Target& target : chain.targets) {
      if (target.node != self_.id) continue;
      const auto known = own_.find(target.id);
      Own& own = found[target.id];
      if (known != own_.end()) own = known->second;
      own.chain = id;
    }
  }
  own_ = std::move(found);
}

const Member::Own* Member::own(TargetId id) const {
  const auto found = own_.find(id);
  return found == own_.end() ? nullptr : &found->second;
}

std::optional<ChainId> Member::chain_of(TargetId id) const {
  const Own* const known = own(id);
  return known == nullptr ? std::nullopt : std::optional(known->chain);
}

const Target* Member::target(TargetId id, const Chain*& chain) const {
  const Own* const known = own(id);
  if (known == nullptr) return nullptr;
  chain = routing_.chain(known->chain);
  return find_target(*chain, id);
}

std::vector<TargetId> Member::to_make() const {
  std::vector<TargetId> missing;
  for (const auto& [id, own] : own_) {
    const Chain* chain = nullptr;
    if (!own.usable && !target(id, chain)->created) missing.push_back(id);
  }
  return missing;
}

void Member::set_usable(TargetId id, bool usable) {
  const auto found = own_.find(id);
  if (found == own_.end()) return;
  Own& own = found->second;
  own.usable = usable;
  if (usable) return;
  // It may serve again only once the chain has changed: a report of its failure may be on its way.
  own.offline_version = routing_.chain(own.chain)->version;
  own.copied_version = 0;
}

void Member::set_copied(TargetId id, uint64_t chain_version) {
  const auto found = own_.find(id);
  if (found != own_.end()) found->second.copied_version = chain_version;
}

void Member::set_progress(TargetId id, uint64_t copied, uint64_t to_copy) {
  const auto found = own_.find(id);
  if (found == own_.end()) return;
  found->second.copied = copied;
  found->second.to_copy = to_copy;
}

void Member::set_size(TargetId id, Size size) {
  const auto found = own_.find(id);
  if (found != own_.end()) found->second.size = size;
}

void Member::set_unreachable(TargetId id, std::optional<Unreachable> cut) {
  const auto found = own_.find(id);
  if (found != own_.end()) found->second.cut = cut;
}

std::vector<Unreachable> Member::unreachable() const {
  std::vector<Unreachable> cuts;
  for (const auto& [id, own] : own_) {
    if (own.cut) cuts.push_back(*own.cut);
  }
  return cuts;
}

Local Member::local(TargetId id) const {
  const Chain* chain = nullptr;
  const Target* const at = target(id, chain);
  if (at == nullptr) return Local::offline;
  const Own& known = *own(id);
  const bool counted_on = at->state == State::serving || at->state == State::syncing;
  if (!known.usable || at->stop) return Local::offline;
  if (counted_on && known.offline_version == chain->version) return Local::offline;
  if (at->state == State::serving) return Local::uptodate;
  const bool copied = at->state == State::syncing && known.copied_version == chain->version;
  return copied ? Local::uptodate : Local::online;
}

std::vector<TargetReport> Member::targets() const {
  std::vector<TargetReport> reports;
  if (!returned_) return reports;
  for (const auto& [id, own] : own_) {
    reports.push_back({.target = id,
                       .chain = own.chain,
                       .local = local(id),
                       .chain_version = routing_.chain(own.chain)->version,
                       .copied = own.copied,
                       .to_copy = own.to_copy,
                       .size = own.size});
  }
  return reports;
}

Heartbeat Member::report() {
  Heartbeat beat{.cluster = routing_.cluster,
                 .node = self_,
                 .sequence = ++sequence_,
                 .routing_version = routing_.version,
                 .targets = targets(),
                 .disks = use_,
                 .unreachable = unreachable()};
  for (const TargetReport& report : beat.targets) {
    if (report.local == Local::offline) own_[report.target].offline_version = report.chain_version;
  }
  return beat;
}

bool Member::has_news() const {
  if (!answered_ || !returned_ || self_ != told_self_ || unreachable() != told_cuts_) return true;
  // How far a copy has come can wait for the next heartbeat.
  return !std::ranges::equal(targets(), told_, [](const TargetReport& a, const TargetReport& b) {
    return a.target == b.target && a.local == b.local && a.chain_version == b.chain_version;
  });
}

bool Member::expects_changes() const {
  return std::ranges::any_of(own_, [&](const auto& entry) {
    return std::ranges::any_of(routing_.chain(entry.second.chain)->targets, [](const Target& at) {
      return at.state == State::syncing || at.state == State::waiting;
    });
  });
}

Result<void> Member::answered(const Heartbeat& sent, int64_t sent_ns,
                              const HeartbeatAnswer& answer) {
  FF_TRY(routing_.apply(answer.changes));
  find_own();
  note_states();
  for (const Predecessor& before : answer.predecessors) {
    const auto found = own_.find(before.target);
    if (found == own_.end() || found->second.serving_since == 0) continue;
    if (before.confirmed >= found->second.serving_since) found->second.joined = true;
  }
  if (!answer.changes.complete) return {};
  returned_ = returned_ || std::ranges::none_of(own_, [&](const auto& entry) {
                const Chain* chain = nullptr;
                return taken_part(target(entry.first, chain)->state);
              });
  lease_from_ns_ = answered_ ? std::max(lease_from_ns_, sent_ns) : sent_ns;
  answered_ = true;
  told_ = sent.targets;
  told_cuts_ = sent.unreachable;
  told_self_ = sent.node;
  return {};
}

// Since when each target serves, and the head of a chain has nobody before it.
void Member::note_states() {
  for (auto& [id, own] : own_) {
    const Chain* chain = nullptr;
    const Target* const at = target(id, chain);
    if (at->state != State::serving) {
      own.serving_since = 0;
      own.joined = false;
      continue;
    }
    if (own.serving_since == 0) own.serving_since = chain->version;
    if (at == &chain->targets.front()) own.joined = true;
  }
}

bool Member::has_lease(int64_t now_ns) const {
  return answered_ && now_ns - lease_from_ns_ < kServeNs;
}

bool Member::may_write(TargetId id, int64_t now_ns) const {
  if (!returned_ || !has_lease(now_ns)) return false;
  const Chain* chain = nullptr;
  const Target* const at = target(id, chain);
  if (at == nullptr || (at->state != State::serving && at->state != State::syncing)) return false;
  return local(id) != Local::offline;
}

bool Member::may_read(TargetId id, int64_t now_ns) const {
  if (!may_write(id, now_ns)) return false;
  return own(id)->joined;
}

}  // namespace ff::cluster
