// transition.cc: who serves after the step, then everybody's next state, then the order.
#include "storage/cluster/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/base/check.h"

namespace ff::cluster {

namespace {

// What the rows look at beside the target itself.
struct Around {
  bool serves = false;     // any target but a lastsrv, after the step
  TargetId heir = 0;       // of the serving targets that all go offline: the first in order
  TargetId next_sync = 0;  // the first behind those that serve
};

bool serves_after(const Target& target, Local local) {
  if (target.state == State::serving) return local != Local::offline;
  return target.state == State::syncing && local == Local::uptodate;
}

bool wants_sync(const Target& target, Local local) {
  return local == Local::online &&
         (target.state == State::syncing || target.state == State::waiting);
}

Around look_around(const Chain& chain, std::span<const Local> locals) {
  Around around;
  bool lastsrv_returns = false;
  for (size_t i = 0; i < chain.targets.size(); i++) {
    const Target& target = chain.targets[i];
    if (serves_after(target, locals[i])) around.serves = true;
    if (target.state == State::serving && around.heir == 0) around.heir = target.id;
    if (target.state == State::lastsrv && locals[i] != Local::offline) lastsrv_returns = true;
    // The order has a syncing one before those that wait.
    if (wants_sync(target, locals[i]) && around.next_sync == 0) around.next_sync = target.id;
  }
  if (!around.serves && !lastsrv_returns) around.next_sync = 0;
  return around;
}

State next_state(const Target& target, Local local, const Around& around) {
  switch (target.state) {
    case State::lastsrv:
      if (around.serves) return State::offline;
      return local == Local::offline ? State::lastsrv : State::serving;
    case State::serving:
      if (local != Local::offline) return State::serving;
      return !around.serves && target.id == around.heir ? State::lastsrv : State::offline;
    case State::syncing:
    case State::waiting:
      if (local == Local::offline) return State::offline;
      if (local == Local::uptodate) {
        return target.state == State::syncing ? State::serving : State::waiting;
      }
      return target.id == around.next_sync ? State::syncing : State::waiting;
    case State::offline: return local == Local::offline ? State::offline : State::waiting;
  }
  FF_CHECK(!"a target in no state");
  return State::offline;
}

size_t count(const Chain& chain, State state) {
  return static_cast<size_t>(std::ranges::count(chain.targets, state, &Target::state));
}

std::set<TargetId> ids(const Chain& chain) {
  std::set<TargetId> all;
  for (const Target& target : chain.targets) all.insert(target.id);
  return all;
}

}  // namespace

Chain step(const Chain& chain, std::span<const Local> locals) {
  FF_CHECK(locals.size() == chain.targets.size());
  const Around around = look_around(chain, locals);
  Chain next = chain;
  for (size_t i = 0; i < locals.size(); i++) {
    next.targets[i].state = next_state(chain.targets[i], locals[i], around);
  }
  std::ranges::stable_sort(next.targets, {}, &Target::state);
  if (next != chain) next.version++;
  return next;
}

std::string broken_invariant(const Chain& chain) {
  const size_t serving = count(chain, State::serving);
  const size_t lastsrv = count(chain, State::lastsrv);
  const size_t syncing = count(chain, State::syncing);
  const auto says = [&](std::string_view what) {
    return fmt::format("chain {} version {}: {}", chain.id, chain.version, what);
  };
  if (serving + lastsrv == 0) return says("no target is serving or lastsrv");
  if (lastsrv > 1) return says("several targets are lastsrv");
  if (lastsrv > 0 && serving > 0) return says("a target is lastsrv while another serves");
  if (syncing > 1) return says("several targets sync");
  if (syncing > 0 && serving == 0) return says("a target syncs while none serves");
  if (!std::ranges::is_sorted(chain.targets, {}, &Target::state)) return says("out of order");
  if (ids(chain).size() != chain.targets.size()) return says("a target is in it twice");
  return {};
}

std::string broken_invariant(const Chain& before, const Chain& after, bool replaced) {
  if (auto broken = broken_invariant(after); !broken.empty()) return broken;
  const auto says = [&](std::string_view what) {
    return fmt::format("chain {} version {} to {}: {}", after.id, before.version, after.version,
                       what);
  };
  if (before.id != after.id) return says("it became another");
  if (before.targets == after.targets) return {};
  if (after.version <= before.version) return says("it changed and its version did not grow");
  if (before.targets.size() != after.targets.size()) return says("its targets became more or less");
  if (!replaced && ids(before) != ids(after)) return says("its targets became others");
  return {};
}

}  // namespace ff::cluster
