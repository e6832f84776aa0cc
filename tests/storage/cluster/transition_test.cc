// The transition table row by row, and a walk through all reachable states of small chains: the
// invariants hold for any reports in any order.
#include "storage/cluster/transition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ff::cluster {
namespace {

using enum TargetState;

// A chain of targets 1, 2, ... on nodes of the same numbers.
Chain chain_of(const std::vector<TargetState>& states) {
  Chain chain{.id = 7, .version = 5};
  for (const TargetState state : states) {
    const TargetId id = chain.targets.size() + 1;
    chain.targets.push_back({.id = id, .node = id, .state = state});
  }
  return chain;
}

// "1:serving 2:waiting".
std::string text(const Chain& chain) {
  std::string all;
  for (const Target& target : chain.targets) {
    all += fmt::format("{}{}:{}", all.empty() ? "" : " ", target.id, name_of(target.state));
  }
  return all;
}

struct Row {
  std::string name;
  std::vector<TargetState> states;
  std::vector<LocalTargetState> locals;
  std::string next;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr LocalTargetState kUp = LocalTargetState::uptodate, kOn = LocalTargetState::online,
                           kOff = LocalTargetState::offline;

const Row kRows[] = {
    // lastsrv while another serves: only an operator command leads there.
    {"lastsrv_beside_serving_on", {serving, lastsrv}, {kUp, kOn}, "1:serving 2:offline"},
    {"lastsrv_beside_serving_up", {serving, lastsrv}, {kUp, kUp}, "1:serving 2:offline"},
    {"lastsrv_beside_serving_off", {serving, lastsrv}, {kUp, kOff}, "1:serving 2:offline"},
    {"lastsrv_returns_up", {lastsrv, offline}, {kUp, kOff}, "1:serving 2:offline"},
    {"lastsrv_returns_on", {lastsrv, offline}, {kOn, kOff}, "1:serving 2:offline"},
    {"serving_goes", {serving, serving}, {kOff, kUp}, "2:serving 1:offline"},
    {"serving_goes_as_another_is_copied", {serving, syncing}, {kOff, kUp}, "2:serving 1:offline"},
    {"the_last_goes", {serving, offline}, {kOff, kOff}, "1:lastsrv 2:offline"},
    {"the_last_go_together", {serving, serving}, {kOff, kOff}, "1:lastsrv 2:offline"},
    {"lastsrv_stays_away", {lastsrv, offline}, {kOff, kOff}, "1:lastsrv 2:offline"},
    {"syncing_goes", {serving, syncing}, {kUp, kOff}, "1:serving 2:offline"},
    {"waiting_goes", {serving, waiting}, {kUp, kOff}, "1:serving 2:offline"},
    {"offline_stays", {serving, offline}, {kUp, kOff}, "1:serving 2:offline"},
    {"serving_stays_up", {serving}, {kUp}, "1:serving"},
    {"serving_stays_on", {serving}, {kOn}, "1:serving"},
    {"syncing_is_copied", {serving, syncing}, {kUp, kUp}, "1:serving 2:serving"},
    {"syncing_goes_on", {serving, syncing}, {kUp, kOn}, "1:serving 2:syncing"},
    {"waiting_starts", {serving, waiting}, {kUp, kOn}, "1:serving 2:syncing"},
    {"waiting_waits_its_turn",
     {serving, waiting, waiting},
     {kUp, kOn, kOn},
     "1:serving 2:syncing 3:waiting"},
    {"waiting_behind_syncing",
     {serving, syncing, waiting},
     {kUp, kOn, kOn},
     "1:serving 2:syncing 3:waiting"},
    {"waiting_takes_over",
     {serving, syncing, waiting},
     {kUp, kUp, kOn},
     "1:serving 2:serving 3:syncing"},
    {"waiting_overtakes_the_lost",
     {serving, syncing, waiting},
     {kUp, kOff, kOn},
     "1:serving 3:syncing 2:offline"},
    {"syncing_loses_its_source", {serving, syncing}, {kOff, kOn}, "1:lastsrv 2:waiting"},
    {"waiting_without_source", {lastsrv, waiting}, {kOff, kOn}, "1:lastsrv 2:waiting"},
    {"waiting_gets_its_source_back", {lastsrv, waiting}, {kOn, kOn}, "1:serving 2:syncing"},
    {"offline_returns_on", {serving, offline}, {kUp, kOn}, "1:serving 2:waiting"},
    {"offline_returns_up", {serving, offline}, {kUp, kUp}, "1:serving 2:waiting"},
    {"waiting_up_is_not_believed", {serving, waiting}, {kUp, kUp}, "1:serving 2:waiting"},
    {"order_is_kept",
     {serving, serving, serving},
     {kUp, kOff, kUp},
     "1:serving 3:serving 2:offline"},
};

class TransitionRow : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(ChainTable, TransitionRow, testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

TEST_P(TransitionRow, GivesTheNextState) {
  const Row& row = GetParam();
  const Chain before = chain_of(row.states);
  const Chain after = next_chain_state(before, row.locals);
  EXPECT_EQ(text(after), row.next);
  EXPECT_EQ(after.version, text(before) == text(after) ? 5u : 6u);
}

// Ground truth of a chain: which targets have all acknowledged data. A complete copy adds a target;
// a write keeps only those that took part.
struct World {
  Chain chain;
  std::set<TargetId> whole;
  std::string key() const {
    std::string key = text(chain);
    for (const TargetId id : whole) key += fmt::format(" {}", id);
    return key;
  }
};

// All combinations of local states; `honest`: only those a node can report, which is uptodate when
// it serves or is copied completely.
std::vector<std::vector<LocalTargetState>> choices(const Chain& chain, bool honest) {
  std::vector<std::vector<LocalTargetState>> all = {{}};
  for (const Target& target : chain.targets) {
    std::vector<std::vector<LocalTargetState>> longer;
    for (const auto& choice : all) {
      for (const LocalTargetState local : {kUp, kOn, kOff}) {
        const bool can = target.state == serving || target.state == syncing;
        if (honest && local == kUp && !can) continue;
        longer.push_back(choice);
        longer.back().push_back(local);
      }
    }
    all = std::move(longer);
  }
  return all;
}

World after(const World& world, const std::vector<LocalTargetState>& locals) {
  World next = world;
  next.chain = next_chain_state(world.chain, locals);
  next.chain.version = world.chain.version;  // otherwise the walk would be infinite
  for (size_t i = 0; i < locals.size(); i++) {
    const Target& target = world.chain.targets[i];
    if (target.state == syncing && locals[i] == kUp) next.whole.insert(target.id);
  }
  return next;
}

// After an acknowledged write, targets that did not take part lack it.
World written(World world) {
  if (world.chain.targets.front().state != serving) return world;
  for (const Target& target : world.chain.targets) {
    if (target.state != serving) world.whole.erase(target.id);
  }
  return world;
}

void walk(size_t targets, bool honest) {
  std::vector<TargetState> states(targets, offline);
  states.front() = lastsrv;
  World first{chain_of(states), {}};
  for (size_t id = 1; id <= targets; id++) first.whole.insert(id);
  std::map<std::string, World> seen = {{first.key(), first}};
  std::deque<World> next = {first};
  size_t steps = 0;
  const auto reach = [&](World world) {
    if (seen.emplace(world.key(), world).second) next.push_back(std::move(world));
  };
  while (!next.empty()) {
    const World world = next.front();
    next.pop_front();
    for (const auto& locals : choices(world.chain, honest)) {
      const Chain stepped = next_chain_state(world.chain, locals);
      ASSERT_EQ(broken_invariant(world.chain, stepped), "") << world.key();
      ASSERT_EQ(next_chain_state(world.chain, locals), stepped);
      World then = after(world, locals);
      steps++;
      for (const Target& target : then.chain.targets) {
        if (!honest || (target.state != serving && target.state != lastsrv)) continue;
        ASSERT_TRUE(then.whole.contains(target.id))
            << world.key() << " -> " << then.key() << ": target " << target.id << " lacks data";
      }
      reach(written(then));
      reach(std::move(then));
    }
  }
  EXPECT_GT(steps, seen.size());
  // The walk must have visited all kinds of states.
  for (const TargetState state : {serving, lastsrv, syncing, waiting, offline}) {
    if (targets == 1 && state != serving && state != lastsrv) continue;
    EXPECT_TRUE(std::ranges::any_of(seen, [&](const auto& entry) {
      return std::ranges::count(entry.second.chain.targets, state, &Target::state) > 0;
    })) << name_of(state);
  }
}

class ChainWalk : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Targets, ChainWalk, testing::Range(size_t{1}, size_t{5}));

TEST_P(ChainWalk, InvariantsHoldWhateverIsReported) { walk(GetParam(), false); }
TEST_P(ChainWalk, WhoServesOrIsLastsrvHasAllThatWasAcknowledged) { walk(GetParam(), true); }

// From every reachable state all targets serve again, once all nodes are well.
TEST_P(ChainWalk, WellNodesBringAllTargetsBack) {
  std::vector<TargetState> states(GetParam(), offline);
  states.front() = lastsrv;
  std::map<std::string, Chain> seen;
  std::deque<Chain> next = {chain_of(states)};
  while (!next.empty()) {
    const Chain chain = next.front();
    next.pop_front();
    if (!seen.emplace(text(chain), chain).second) continue;
    for (const auto& locals : choices(chain, false)) {
      Chain stepped = next_chain_state(chain, locals);
      stepped.version = chain.version;
      next.push_back(std::move(stepped));
    }
    Chain healing = chain;
    for (size_t i = 0; i < 4 * GetParam() + 2; i++) {
      std::vector<LocalTargetState> well;
      for (const Target& target : healing.targets) {
        well.push_back(target.state == serving || target.state == syncing ? kUp : kOn);
      }
      healing = next_chain_state(healing, well);
    }
    EXPECT_EQ(std::ranges::count(healing.targets, serving, &Target::state),
              static_cast<ptrdiff_t>(GetParam()))
        << text(chain) << " ends as " << text(healing);
  }
}

TEST(InvariantTest, NamesWhatIsBroken) {
  EXPECT_EQ(broken_invariant(chain_of({serving, syncing, waiting, offline})), "");
  EXPECT_NE(broken_invariant(chain_of({waiting, offline})), "");
  EXPECT_NE(broken_invariant(chain_of({lastsrv, lastsrv})), "");
  EXPECT_NE(broken_invariant(chain_of({serving, lastsrv})), "");
  EXPECT_NE(broken_invariant(chain_of({serving, syncing, syncing})), "");
  EXPECT_NE(broken_invariant(chain_of({lastsrv, syncing})), "");
  EXPECT_NE(broken_invariant(chain_of({serving, offline, waiting})), "");
  Chain twice = chain_of({serving, serving});
  twice.targets[1].id = 1;
  EXPECT_NE(broken_invariant(twice), "");

  const Chain before = chain_of({serving, serving});
  Chain after = before;
  EXPECT_EQ(broken_invariant(before, after), "");
  after.targets[1].state = offline;
  EXPECT_NE(broken_invariant(before, after), "");  // with the same version
  after.version++;
  EXPECT_EQ(broken_invariant(before, after), "");
  after.targets[1].id = 9;
  EXPECT_NE(broken_invariant(before, after), "");
  EXPECT_EQ(broken_invariant(before, after, true), "");
  after.targets.pop_back();
  EXPECT_NE(broken_invariant(before, after, true), "");
}

}  // namespace
}  // namespace ff::cluster
