// Decisions after a data loss (manager.h): which target replaces one that does not come back, and
// what happens to the other replicas. Nothing is erased.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/cluster/manager.h"

namespace ff::cluster {

namespace {

// Compares by complete_version, then by written_version.
bool has_less(const Target& a, const Target& b) {
  return std::pair(a.complete_version, a.written_version) <
         std::pair(b.complete_version, b.written_version);
}

SetAside set_aside_of(const Chain& chain, const Target& target, int64_t wall_ns) {
  return {.target = target.id,
          .node = target.node,
          .disk = target.disk,
          .complete_version = target.complete_version,
          .written_version = target.written_version,
          .chunks = target.chunks,
          .bytes = target.bytes,
          .wall_ns = wall_ns,
          .missing_below = chain.missing_below};
}

Error refused(std::string message, std::string hint) {
  return {Errc::refused, std::move(message), std::move(hint)};
}

}  // namespace

Target Manager::with_current_data(const Chain& chain, const Target& target) const {
  Target has = target;
  const bool serves = target.state == TargetState::serving;
  // A record from before these fields existed.
  const bool untold =
      target.state == TargetState::lastsrv && target.created && target.complete_version == 0;
  if (serves || untold) has.complete_version = chain.version;
  if (serves || untold || target.state == TargetState::syncing) has.written_version = chain.version;
  const auto size = sizes_.find(target.id);
  if (size == sizes_.end()) return has;
  has.chunks = size->second.chunks;
  has.bytes = size->second.bytes;
  return has;
}

// A target that has just begun to wait has reported under the previous version.
bool Manager::promotable(const Chain& chain, const Target& target) const {
  const TargetReport* const last =
      target.state == TargetState::offline ? current_report(chain, target) : report(target);
  return last != nullptr && last->local != LocalTargetState::offline;
}

std::string Manager::describe(const Chain& chain, const Target& target) const {
  const Target has = with_current_data(chain, target);
  return fmt::format("target {} on node {} ({}, {} chunks, {} bytes)", target.id, target.node,
                     has.complete_version == 0
                         ? "incomplete: it was syncing"
                         : fmt::format("complete up to chain version {}", has.complete_version),
                     has.chunks, has.bytes);
}

// Chooses the target to promote in a chain whose first target is lost.
Result<const Target*> Manager::choose_candidate(const Chain& chain, TargetId promote) const {
  const Target& dead = chain.targets.front();
  const Target* most = nullptr;   // with the most data among all others, alive or not
  const Target* alive = nullptr;  // with the most data among those alive
  for (const Target& target : chain.targets) {
    if (target.id == dead.id || !target.created) continue;
    const auto beats = [&](const Target* best) {
      return best == nullptr ||
             has_less(with_current_data(chain, *best), with_current_data(chain, target));
    };
    if (beats(most)) most = &target;
    if (promotable(chain, target) && beats(alive)) alive = &target;
  }
  const bool anything = dead.created;  // otherwise the chain never had data
  const Target* candidate = promote == 0 ? alive : find_target(chain, promote);
  if (promote != 0 && (candidate == nullptr || candidate == &dead)) {
    return fail(Errc::usage, "target {} is not another replica of chain {}", promote, chain.id);
  }
  if (candidate == nullptr) {
    return refused(fmt::format("chain {} has no other live target", chain.id),
                   "Bring back a node of one of its targets: ff admin targets.");
  }
  if (!promotable(chain, *candidate)) {
    return fail(Errc::refused, "target {} is not alive on node {}", candidate->id, candidate->node);
  }
  const bool complete = with_current_data(chain, *candidate).complete_version > 0 || !anything;
  const bool other_complete =
      most != nullptr && most != candidate && with_current_data(chain, *most).complete_version > 0;
  if (!complete && other_complete) {
    return refused(fmt::format("chain {}: cannot promote {} while {} is known", chain.id,
                               describe(chain, *candidate), describe(chain, *most)),
                   promotable(chain, *most)
                       ? fmt::format("Promote the complete one: --promote {}.", most->id)
                       : fmt::format("Bring back node {}. If its data is lost for good: ff admin "
                                     "replace-target {}, then repeat this command.",
                                     most->node, most->id));
  }
  const auto kept = std::ranges::find_if(chain.aside, [](const SetAside& aside) {
    return !aside.dropped && aside.complete_version > 0;
  });
  if (!complete && kept != chain.aside.end()) {
    return refused(
        fmt::format("chain {}: cannot promote {} while target {} is known, which was complete when "
                    "it was set aside",
                    chain.id, describe(chain, *candidate), kept->target),
        fmt::format(
            "Promote the complete one: --promote {}. Or drop it first: ff admin drop-target {}.",
            kept->target, kept->target));
  }
  if (promote != 0) return candidate;
  if (!complete) {
    return refused(
        fmt::format("chain {}: only the lost replica is complete; the best other one is {}",
                    chain.id, describe(chain, *candidate)),
        fmt::format("Bring back node {}. If its data is lost for good, choose the replica to "
                    "promote: --promote {}.",
                    dead.node, candidate->id));
  }
  if (most != nullptr &&
      has_less(with_current_data(chain, *candidate), with_current_data(chain, *most)) &&
      with_current_data(chain, *most).complete_version >
          with_current_data(chain, *candidate).complete_version) {
    return refused(fmt::format("chain {}: {} has more data than {}, but is not alive", chain.id,
                               describe(chain, *most), describe(chain, *candidate)),
                   fmt::format("Bring back node {}. If its data is lost for good: --promote {}.",
                               most->node, candidate->id));
  }
  return candidate;
}

// Sets aside each replica that may have data which the candidate lacks; a new target replaces it.
void Manager::set_aside_others(Chain& chain, const Target& candidate, DataLossPlan& plan,
                               int64_t wall_ns) const {
  const Target candidate_has = candidate;
  TargetId next = last_target(routing_);
  for (Target& target : chain.targets) {
    if (target.id == candidate_has.id) continue;
    const auto size = sizes_.find(target.id);
    const bool empty = size != sizes_.end() && size->second.chunks == 0;
    const bool has_more =
        target.written_version > candidate_has.complete_version || target.written_version == 0;
    if (!target.created || empty || !has_more) {
      if (target.state == TargetState::lastsrv || target.state == TargetState::serving ||
          target.state == TargetState::syncing) {
        target.state = TargetState::offline;
      }
      continue;
    }
    plan.loss.chunks =
        std::max(plan.loss.chunks, target.chunks - std::min(target.chunks, candidate_has.chunks));
    plan.loss.bytes =
        std::max(plan.loss.bytes, target.bytes - std::min(target.bytes, candidate_has.bytes));
    plan.aside.push_back(set_aside_of(chain, target, wall_ns));
    plan.aside.back().changed = routing_.version + 1;
    target = {.id = ++next, .node = target.node, .disk = target.disk, .draining = target.draining};
  }
  chain.aside.insert(chain.aside.end(), plan.aside.begin(), plan.aside.end());
}

Result<DataLossPlan> Manager::plan_loss(const AcceptLossOptions& options, int64_t now_ns) const {
  if (options.requested_by.size() > kTextMax)
    return fail(Errc::usage, "the operator name has {} bytes", options.requested_by.size());
  const Chain* const found = routing_.chain(options.chain);
  if (found == nullptr) return fail(Errc::usage, "unknown chain {}", options.chain);
  const Chain& chain = *found;
  if (options.expect != 0 && options.expect != chain.version) {
    return refused(fmt::format("chain {} has changed: it has version {}, not {}", chain.id,
                               chain.version, options.expect),
                   "Repeat the command to see the current plan.");
  }
  if (options.promote != 0 && find_set_aside(chain, options.promote) != nullptr) {
    return plan_restore(chain, options, now_ns);
  }
  const Target& dead = chain.targets.front();
  if (dead.state != TargetState::lastsrv) {
    return refused(
        fmt::format("chain {} has not lost data: target {} serves", options.chain, dead.id),
        "See 'ff admin status'.");
  }
  const TargetReport* const last = current_report(chain, dead);
  if (last != nullptr && last->local != LocalTargetState::offline) {
    return fail(Errc::refused, "target {} of chain {} is back", dead.id, options.chain);
  }
  FF_TRY(const Target* const candidate, choose_candidate(chain, options.promote));
  DataLossPlan plan{.after = chain};
  plan.loss = {.chain = chain.id,
               .version = chain.version + 1,
               .promoted = candidate->id,
               .abandoned = dead.id,
               .wall_ns = options.wall_ns,
               .requested_by = options.requested_by};
  for (Target& target : plan.after.targets) target = with_current_data(chain, target);
  const Target candidate_has = *find_target(plan.after, candidate->id);
  plan.incomplete = candidate_has.complete_version == 0 && dead.created;
  for (const Target& other : plan.after.targets) {
    const bool counts = other.id != dead.id && other.id != candidate->id;
    if (counts && other.complete_version > candidate_has.complete_version) plan.incomplete = true;
  }
  set_aside_others(plan.after, candidate_has, plan, options.wall_ns);
  Target& promoted = *find_target(plan.after, candidate->id);
  promoted.state = TargetState::serving;
  promoted.created = true;
  if (candidate_has.complete_version == 0 && dead.created) {
    // New inodes are higher, so their chunks are not considered missing.
    for (const auto& [id, size] : sizes_) {
      plan.after.missing_below = std::max(plan.after.missing_below, size.last_inode + 1);
    }
  }
  return plan;
}

// Promotes a set-aside replica in place of the serving ones. It starts as lastsrv and serves only
// once no other target does (fenced).
Result<DataLossPlan> Manager::plan_restore(const Chain& chain, const AcceptLossOptions& options,
                                           int64_t now_ns) const {
  const SetAside aside = *find_set_aside(chain, options.promote);
  if (aside.dropped) {
    return fail(Errc::refused, "target {} of chain {} has been dropped", aside.target, chain.id);
  }
  if (node_status(aside.node) == nullptr || !alive(aside.node, now_ns)) {
    return refused(fmt::format("target {} was set aside on node {}, which sends no heartbeats",
                               aside.target, aside.node),
                   "Bring back the node first.");
  }
  DataLossPlan plan{.after = chain, .incomplete = aside.complete_version == 0};
  plan.loss = {.chain = chain.id,
               .version = chain.version + 1,
               .promoted = aside.target,
               .abandoned = chain.targets.front().id,
               .wall_ns = options.wall_ns,
               .requested_by = options.requested_by};
  std::erase_if(plan.after.aside, [&](const SetAside& it) { return it.target == aside.target; });
  for (Target& target : plan.after.targets) target = with_current_data(chain, target);
  const Target candidate{.id = aside.target,
                         .node = aside.node,
                         .disk = aside.disk,
                         .state = TargetState::lastsrv,
                         .created = true,
                         .complete_version = aside.complete_version,
                         .written_version = aside.written_version,
                         .chunks = aside.chunks,
                         .bytes = aside.bytes};
  set_aside_others(plan.after, candidate, plan, options.wall_ns);
  auto& targets = plan.after.targets;
  auto slot = std::ranges::find(targets, aside.node, &Target::node);
  if (slot == targets.end()) slot = std::prev(targets.end());
  if (find_target(chain, slot->id) != nullptr) {
    // Its id must not be assigned again, even if it has no data.
    const auto size = sizes_.find(slot->id);
    SetAside& left = plan.after.aside.emplace_back(set_aside_of(chain, *slot, options.wall_ns));
    left.changed = routing_.version + 1;
    left.dropped = !slot->created || (size != sizes_.end() && size->second.chunks == 0);
  }
  *slot = candidate;
  plan.after.missing_below = aside.missing_below;
  return plan;
}

Result<Proposal> Manager::accept_loss(const AcceptLossOptions& options, int64_t now_ns) {
  FF_TRY(check_idle());
  FF_TRY(DataLossPlan plan, plan_loss(options, now_ns));
  if (plan.incomplete && !options.incomplete) {
    return refused(
        fmt::format("target {} of chain {} has less data than another known replica: at least {} "
                    "chunks with {} bytes would be lost",
                    plan.loss.promoted, options.chain, plan.loss.chunks, plan.loss.bytes),
        "Use a current 'ff admin accept-loss', which shows this before it acts.");
  }
  Proposal proposal{.changes = {}, .loss = plan.loss};
  Chain& chain = plan.after;
  std::ranges::stable_sort(chain.targets, {}, &Target::state);
  update_stop_flags(chain);
  chain.version++;
  chain.lost_version = chain.version;
  proposal.changes.chains.push_back(std::move(chain));
  return set_pending(std::move(proposal), true);
}

Result<Proposal> Manager::drop_target(TargetId id) {
  FF_TRY(check_idle());
  for (const auto& [chain_id, found] : routing_.chains) {
    if (find_set_aside(found, id) == nullptr) continue;
    Chain chain = found;
    SetAside& aside = *std::ranges::find(chain.aside, id, &SetAside::target);
    if (aside.dropped) return fail(Errc::exists, "target {} is already dropped", id);
    aside.dropped = true;
    Proposal proposal;
    proposal.changes.chains.push_back(std::move(chain));
    return set_pending(std::move(proposal));
  }
  Error error = fail(Errc::usage, "target {} is not set aside", id);
  error.hint = "'ff admin status' lists targets that are set aside.";
  return error;
}

// Whether the first target must wait: the node of a replica that was set aside may not know yet,
// and still serve.
bool Manager::fenced(const Chain& chain, int64_t now_ns) const {
  return std::ranges::any_of(chain.aside, [&](const SetAside& aside) {
    if (!alive(aside.node, now_ns)) return false;
    const NodeStatus* const node = node_status(aside.node);
    return node == nullptr || node->routing_version < aside.changed;
  });
}

// Drops set-aside replicas after the retention time, and removes dropped ones from the record once
// every node has seen that.
void Manager::expire_set_aside(Chain& chain) const {
  if (chain.aside.empty()) return;
  for (SetAside& aside : chain.aside) {
    const bool old = lost_retention_ns_ > 0 && wall_ns_ - aside.wall_ns > lost_retention_ns_;
    aside.dropped = aside.dropped || old;
  }
  const bool whole = std::ranges::all_of(
      chain.targets, [](const Target& target) { return target.state == TargetState::serving; });
  if (whole) std::erase_if(chain.aside, [](const SetAside& aside) { return aside.dropped; });
}

}  // namespace ff::cluster
