// What is decided when data is lost (manager.h): which target goes on in the place of one that does
// not come back, and what becomes of the others. Nothing is erased by it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/cluster/manager.h"

namespace ff::cluster {

namespace {

// Who has more: all up to a later version, then anything of a later one.
bool has_less(const Target& a, const Target& b) {
  return std::pair(a.held, a.wrote) < std::pair(b.held, b.wrote);
}

SetAside aside_of(const Chain& chain, const Target& target, int64_t wall_ns) {
  return {.target = target.id,
          .node = target.node,
          .disk = target.disk,
          .held = target.held,
          .wrote = target.wrote,
          .chunks = target.chunks,
          .bytes = target.bytes,
          .wall_ns = wall_ns,
          .lost_below = chain.lost_below};
}

Error refused(std::string message, std::string hint) {
  return {Errc::refused, std::move(message), std::move(hint)};
}

}  // namespace

Target Manager::with_holding(const Chain& chain, const Target& target) const {
  Target has = target;
  const bool serves = target.state == State::serving;
  // Of a chain from before this was written down.
  const bool untold = target.state == State::lastsrv && target.created && target.held == 0;
  if (serves || untold) has.held = chain.version;
  if (serves || untold || target.state == State::syncing) has.wrote = chain.version;
  const auto size = sizes_.find(target.id);
  if (size == sizes_.end()) return has;
  has.chunks = size->second.chunks;
  has.bytes = size->second.bytes;
  return has;
}

// One that waits has reported under the version before, when it has just begun to.
bool Manager::promotable(const Chain& chain, const Target& target) const {
  const TargetReport* const last =
      target.state == State::offline ? fresh_report(chain, target) : report(target);
  return last != nullptr && last->local != Local::offline;
}

std::string Manager::described(const Chain& chain, const Target& target) const {
  const Target has = with_holding(chain, target);
  return fmt::format("target {} on node {} ({}, {} chunks, {} bytes)", target.id, target.node,
                     has.held == 0
                         ? "was being filled, and is not complete"
                         : fmt::format("complete up to version {} of the chain", has.held),
                     has.chunks, has.bytes);
}

// Of a chain whose first target is lost.
Result<const Target*> Manager::choose_heir(const Chain& chain, TargetId promote) const {
  const Target& dead = chain.targets.front();
  const Target* most = nullptr;   // of all others, alive or not
  const Target* alive = nullptr;  // of those that are
  for (const Target& target : chain.targets) {
    if (target.id == dead.id || !target.created) continue;
    const auto beats = [&](const Target* best) {
      return best == nullptr || has_less(with_holding(chain, *best), with_holding(chain, target));
    };
    if (beats(most)) most = &target;
    if (promotable(chain, target) && beats(alive)) alive = &target;
  }
  const bool anything = dead.created;  // else the chain never had data
  const Target* heir = promote == 0 ? alive : find_target(chain, promote);
  if (promote != 0 && (heir == nullptr || heir == &dead)) {
    return fail(Errc::usage, "target {} is no other replica of chain {}", promote, chain.id);
  }
  if (heir == nullptr) {
    return refused(fmt::format("chain {} has no other target that is alive", chain.id),
                   "Bring a node of one of them back: ff admin targets.");
  }
  if (!promotable(chain, *heir)) {
    return fail(Errc::refused, "target {} is not alive on node {}", heir->id, heir->node);
  }
  const bool complete = with_holding(chain, *heir).held > 0 || !anything;
  const bool other_complete =
      most != nullptr && most != heir && with_holding(chain, *most).held > 0;
  if (!complete && other_complete) {
    return refused(fmt::format("chain {}: {} is no choice while {} is known", chain.id,
                               described(chain, *heir), described(chain, *most)),
                   promotable(chain, *most)
                       ? fmt::format("Promote that one: --promote {}.", most->id)
                       : fmt::format("Bring node {} back. If its data is gone for good: ff admin "
                                     "replace-target {}, then this again.",
                                     most->node, most->id));
  }
  const auto kept = std::ranges::find_if(
      chain.aside, [](const SetAside& aside) { return !aside.dropped && aside.held > 0; });
  if (!complete && kept != chain.aside.end()) {
    return refused(fmt::format("chain {}: {} is no choice while target {} is known, which was "
                               "complete when it was set aside",
                               chain.id, described(chain, *heir), kept->target),
                   fmt::format("Promote that one: --promote {}. Or give it up first: ff admin "
                               "drop-target {}.",
                               kept->target, kept->target));
  }
  if (promote != 0) return heir;
  if (!complete) {
    return refused(fmt::format("chain {}: no replica is complete but the lost one: {} would be the "
                               "best",
                               chain.id, described(chain, *heir)),
                   fmt::format("Bring node {} back. If its data is gone for good, say which one "
                               "shall serve: --promote {}.",
                               dead.node, heir->id));
  }
  if (most != nullptr && has_less(with_holding(chain, *heir), with_holding(chain, *most)) &&
      with_holding(chain, *most).held > with_holding(chain, *heir).held) {
    return refused(fmt::format("chain {}: {} has more than {}, and is not alive", chain.id,
                               described(chain, *most), described(chain, *heir)),
                   fmt::format("Bring node {} back. If its data is gone for good: --promote {}.",
                               most->node, heir->id));
  }
  return heir;
}

// Whatever may hold something that the heir does not is set aside; a new target takes its place.
void Manager::leave_behind(Chain& chain, const Target& heir, LossPlan& plan,
                           int64_t wall_ns) const {
  const Target heir_has = heir;
  TargetId next = last_target(routing_);
  for (Target& target : chain.targets) {
    if (target.id == heir_has.id) continue;
    const auto size = sizes_.find(target.id);
    const bool empty = size != sizes_.end() && size->second.chunks == 0;
    const bool has_more = target.wrote > heir_has.held || target.wrote == 0;
    if (!target.created || empty || !has_more) {
      if (target.state == State::lastsrv || target.state == State::serving ||
          target.state == State::syncing) {
        target.state = State::offline;
      }
      continue;
    }
    plan.loss.chunks =
        std::max(plan.loss.chunks, target.chunks - std::min(target.chunks, heir_has.chunks));
    plan.loss.bytes =
        std::max(plan.loss.bytes, target.bytes - std::min(target.bytes, heir_has.bytes));
    plan.aside.push_back(aside_of(chain, target, wall_ns));
    plan.aside.back().changed = routing_.version + 1;
    target = {.id = ++next, .node = target.node, .disk = target.disk, .draining = target.draining};
  }
  chain.aside.insert(chain.aside.end(), plan.aside.begin(), plan.aside.end());
}

Result<LossPlan> Manager::plan_loss(const LossOrder& order, int64_t now_ns) const {
  if (order.by.size() > kTextMax) return fail(Errc::usage, "a name of {} bytes", order.by.size());
  const Chain* const found = routing_.chain(order.chain);
  if (found == nullptr) return fail(Errc::usage, "there is no chain {}", order.chain);
  const Chain& chain = *found;
  if (order.expect != 0 && order.expect != chain.version) {
    return refused(fmt::format("chain {} has changed meanwhile: it is at version {}, not {}",
                               chain.id, chain.version, order.expect),
                   "Look at what would come of it now: repeat the command.");
  }
  if (order.promote != 0 && find_aside(chain, order.promote) != nullptr) {
    return plan_return(chain, order, now_ns);
  }
  const Target& dead = chain.targets.front();
  if (dead.state != State::lastsrv) {
    return refused(fmt::format("chain {} is not lost: target {} serves", order.chain, dead.id),
                   "'ff admin status' shows what is wrong.");
  }
  const TargetReport* const last = fresh_report(chain, dead);
  if (last != nullptr && last->local != Local::offline) {
    return fail(Errc::refused, "target {} of chain {} is back", dead.id, order.chain);
  }
  FF_TRY(const Target* const heir, choose_heir(chain, order.promote));
  LossPlan plan{.after = chain};
  plan.loss = {.chain = chain.id,
               .version = chain.version + 1,
               .promoted = heir->id,
               .given_up = dead.id,
               .wall_ns = order.wall_ns,
               .by = order.by};
  for (Target& target : plan.after.targets) target = with_holding(chain, target);
  const Target heir_has = *find_target(plan.after, heir->id);
  plan.incomplete = heir_has.held == 0 && dead.created;
  for (const Target& other : plan.after.targets) {
    const bool counts = other.id != dead.id && other.id != heir->id;
    if (counts && other.held > heir_has.held) plan.incomplete = true;
  }
  leave_behind(plan.after, heir_has, plan, order.wall_ns);
  Target& promoted = *find_target(plan.after, heir->id);
  promoted.state = State::serving;
  promoted.created = true;
  if (heir_has.held == 0 && dead.created) {
    // New files' chunks are there, and forgotten holes are not: their inodes are higher.
    for (const auto& [id, size] : sizes_) {
      plan.after.lost_below = std::max(plan.after.lost_below, size.last_inode + 1);
    }
  }
  return plan;
}

// One that was set aside, in the place of whatever serves now. It waits as the last that served, so
// that it goes on only once nobody else does (fenced).
Result<LossPlan> Manager::plan_return(const Chain& chain, const LossOrder& order,
                                      int64_t now_ns) const {
  const SetAside aside = *find_aside(chain, order.promote);
  if (aside.dropped) {
    return fail(Errc::refused, "target {} of chain {} has been dropped", aside.target, chain.id);
  }
  if (seen(aside.node) == nullptr || !alive(aside.node, now_ns)) {
    return refused(fmt::format("target {} was set aside on node {}, which is silent", aside.target,
                               aside.node),
                   "Bring the node back first.");
  }
  LossPlan plan{.after = chain, .incomplete = aside.held == 0};
  plan.loss = {.chain = chain.id,
               .version = chain.version + 1,
               .promoted = aside.target,
               .given_up = chain.targets.front().id,
               .wall_ns = order.wall_ns,
               .by = order.by};
  std::erase_if(plan.after.aside, [&](const SetAside& it) { return it.target == aside.target; });
  for (Target& target : plan.after.targets) target = with_holding(chain, target);
  const Target heir{.id = aside.target,
                    .node = aside.node,
                    .disk = aside.disk,
                    .state = State::lastsrv,
                    .created = true,
                    .held = aside.held,
                    .wrote = aside.wrote,
                    .chunks = aside.chunks,
                    .bytes = aside.bytes};
  leave_behind(plan.after, heir, plan, order.wall_ns);
  auto& targets = plan.after.targets;
  auto place = std::ranges::find(targets, aside.node, &Target::node);
  if (place == targets.end()) place = std::prev(targets.end());
  if (find_target(chain, place->id) != nullptr) {
    // Its number is not to be given again, even if it has nothing.
    const auto size = sizes_.find(place->id);
    SetAside& left = plan.after.aside.emplace_back(aside_of(chain, *place, order.wall_ns));
    left.changed = routing_.version + 1;
    left.dropped = !place->created || (size != sizes_.end() && size->second.chunks == 0);
  }
  *place = heir;
  plan.after.lost_below = aside.lost_below;
  return plan;
}

Result<Proposal> Manager::accept_loss(const LossOrder& order, int64_t now_ns) {
  FF_TRY(check_idle());
  FF_TRY(LossPlan plan, plan_loss(order, now_ns));
  if (plan.incomplete && !order.incomplete) {
    return refused(fmt::format("target {} of chain {} has less than another that is known: {} "
                               "chunks with {} bytes, at least, would be lost",
                               plan.loss.promoted, order.chain, plan.loss.chunks, plan.loss.bytes),
                   "'ff admin accept-loss' of this version says so first, and then does it.");
  }
  Proposal proposal{.changes = {}, .loss = plan.loss};
  Chain& chain = plan.after;
  std::ranges::stable_sort(chain.targets, {}, &Target::state);
  set_stops(chain);
  chain.version++;
  chain.lost_version = chain.version;
  proposal.changes.chains.push_back(std::move(chain));
  return pend(std::move(proposal), true);
}

Result<Proposal> Manager::drop_target(TargetId id) {
  FF_TRY(check_idle());
  for (const auto& [chain_id, found] : routing_.chains) {
    if (find_aside(found, id) == nullptr) continue;
    Chain chain = found;
    SetAside& aside = *std::ranges::find(chain.aside, id, &SetAside::target);
    if (aside.dropped) return fail(Errc::exists, "target {} has been dropped already", id);
    aside.dropped = true;
    Proposal proposal;
    proposal.changes.chains.push_back(std::move(chain));
    return pend(std::move(proposal));
  }
  Error error = fail(Errc::usage, "target {} is none that was set aside", id);
  error.hint = "'ff admin status' shows those that were.";
  return error;
}

// Whether the first target has to wait: a node whose target was set aside for it may not know yet,
// and serve.
bool Manager::fenced(const Chain& chain, int64_t now_ns) const {
  return std::ranges::any_of(chain.aside, [&](const SetAside& aside) {
    if (!alive(aside.node, now_ns)) return false;
    const Seen* const node = seen(aside.node);
    return node == nullptr || node->routing_version < aside.changed;
  });
}

// Those kept for long enough are dropped, and those dropped are forgotten once nobody can have
// missed it.
void Manager::age_aside(Chain& chain) const {
  if (chain.aside.empty()) return;
  for (SetAside& aside : chain.aside) {
    const bool old = keep_lost_ns_ > 0 && wall_ns_ - aside.wall_ns > keep_lost_ns_;
    aside.dropped = aside.dropped || old;
  }
  const bool whole = std::ranges::all_of(
      chain.targets, [](const Target& target) { return target.state == State::serving; });
  if (whole) std::erase_if(chain.aside, [](const SetAside& aside) { return aside.dropped; });
}

}  // namespace ff::cluster
