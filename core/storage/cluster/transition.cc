// transition.cc: who serves after the step, then the next state of each target, then the order.
#include "storage/cluster/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/base/check.h"

namespace ff::cluster {

namespace {

// What the rows of the table need besides the target itself.
struct ChainContext {
  bool serves = false;  // any target except a lastsrv serves after the step
  TargetId last_to_serve =
      0;  // first of the serving targets, which becomes lastsrv when all go offline
  TargetId next_sync = 0;  // first target behind the serving ones
};

bool serves_after(const Target& target, LocalTargetState local) {
  if (target.state == TargetState::serving) return local != LocalTargetState::offline;
  return target.state == TargetState::syncing && local == LocalTargetState::uptodate;
}

bool wants_sync(const Target& target, LocalTargetState local) {
  return local == LocalTargetState::online &&
         (target.state == TargetState::syncing || target.state == TargetState::waiting);
}

ChainContext chain_context(const Chain& chain, std::span<const LocalTargetState> locals) {
  ChainContext context;
  bool lastsrv_returns = false;
  for (size_t i = 0; i < chain.targets.size(); i++) {
    const Target& target = chain.targets[i];
    if (serves_after(target, locals[i])) context.serves = true;
    if (target.state == TargetState::serving && context.last_to_serve == 0)
      context.last_to_serve = target.id;
    if (target.state == TargetState::lastsrv && locals[i] != LocalTargetState::offline)
      lastsrv_returns = true;
    // The order puts a syncing target before waiting ones.
    if (wants_sync(target, locals[i]) && context.next_sync == 0) context.next_sync = target.id;
  }
  if (!context.serves && !lastsrv_returns) context.next_sync = 0;
  return context;
}

TargetState next_state(const Target& target, LocalTargetState local, const ChainContext& context) {
  switch (target.state) {
    case TargetState::lastsrv:
      if (context.serves) return TargetState::offline;
      return local == LocalTargetState::offline ? TargetState::lastsrv : TargetState::serving;
    case TargetState::serving:
      if (local != LocalTargetState::offline) return TargetState::serving;
      return !context.serves && target.id == context.last_to_serve ? TargetState::lastsrv
                                                                   : TargetState::offline;
    case TargetState::syncing:
    case TargetState::waiting:
      if (local == LocalTargetState::offline) return TargetState::offline;
      if (local == LocalTargetState::uptodate) {
        return target.state == TargetState::syncing ? TargetState::serving : TargetState::waiting;
      }
      return target.id == context.next_sync ? TargetState::syncing : TargetState::waiting;
    case TargetState::offline:
      return local == LocalTargetState::offline ? TargetState::offline : TargetState::waiting;
  }
  FF_CHECK(!"a target in no state");
  return TargetState::offline;
}

size_t count(const Chain& chain, TargetState state) {
  return static_cast<size_t>(std::ranges::count(chain.targets, state, &Target::state));
}

std::set<TargetId> ids(const Chain& chain) {
  std::set<TargetId> all;
  for (const Target& target : chain.targets) all.insert(target.id);
  return all;
}

}  // namespace

Chain next_chain_state(const Chain& chain, std::span<const LocalTargetState> locals) {
  FF_CHECK(locals.size() == chain.targets.size());
  const ChainContext context = chain_context(chain, locals);
  Chain next = chain;
  for (size_t i = 0; i < locals.size(); i++) {
    next.targets[i].state = next_state(chain.targets[i], locals[i], context);
  }
  std::ranges::stable_sort(next.targets, {}, &Target::state);
  if (next != chain) next.version++;
  return next;
}

std::string broken_invariant(const Chain& chain) {
  const size_t serving = count(chain, TargetState::serving);
  const size_t lastsrv = count(chain, TargetState::lastsrv);
  const size_t syncing = count(chain, TargetState::syncing);
  const auto says = [&](std::string_view what) {
    return fmt::format("chain {} version {}: {}", chain.id, chain.version, what);
  };
  if (serving + lastsrv == 0) return says("no target is serving or lastsrv");
  if (lastsrv > 1) return says("several targets are lastsrv");
  if (lastsrv > 0 && serving > 0) return says("a target is lastsrv while another serves");
  if (syncing > 1) return says("several targets are syncing");
  if (syncing > 0 && serving == 0) return says("a target is syncing while none serves");
  if (!std::ranges::is_sorted(chain.targets, {}, &Target::state))
    return says("the targets are out of order");
  if (ids(chain).size() != chain.targets.size()) return says("a target is in it twice");
  return {};
}

std::string broken_invariant(const Chain& before, const Chain& after, bool replaced) {
  if (auto broken = broken_invariant(after); !broken.empty()) return broken;
  const auto says = [&](std::string_view what) {
    return fmt::format("chain {} version {} to {}: {}", after.id, before.version, after.version,
                       what);
  };
  if (before.id != after.id) return says("the chain id changed");
  if (before.targets == after.targets) return {};
  if (after.version <= before.version) return says("the chain changed without a higher version");
  if (before.targets.size() != after.targets.size()) return says("the number of targets changed");
  if (!replaced && ids(before) != ids(after)) return says("the set of targets changed");
  return {};
}

}  // namespace ff::cluster
