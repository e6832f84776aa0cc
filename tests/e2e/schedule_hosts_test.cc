// Eight nodes and their scheduler: networks that are cut, and everything killed all the time.
#include "e2e/schedule_hosts.h"

#include <algorithm>

#include "ops/shim/control.h"
#include "platform/base/rng.h"

namespace ff::cmd {
namespace {

class ScheduleHosts : public ScheduleHostsTest {
 protected:
  ScheduleHosts() : ScheduleHostsTest(8) {}
  void SetUp() override {
    ScheduleHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    start(scheduler_);
    for (size_t node = 0; node < nodes_; node++) start(node);
    until("all nodes are there", [&] { return usable() == nodes_; });
  }
  void cut(size_t node) {
    hosts_.cut(node, scheduler_);
    hosts_.cut(scheduler_, node);
  }
  void heal(size_t node) {
    hosts_.heal(node, scheduler_);
    hosts_.heal(scheduler_, node);
  }

  static constexpr const char* kWaits =
      "while [ ! -e $OUT/go ]; do [ ! -e $FF_TASK_DIR/stop ] || leave; sleep 0.05; done";
};

TEST_F(ScheduleHosts, ACutShorterThanTheLeaseIsNotNoticed) {
  const std::string id = submit(kWaits, {"-n", "8"});
  until("all ranks run", [&] { return runs() == nodes_; });
  cut(3);
  until("it is silent", [&] { return node(3)["heard_s"].is_number() && node(3)["heard_s"] > 5; });
  heal(3);
  until("it is back", [&] { return node(3)["heard_s"].is_number() && node(3)["heard_s"] < 3; });
  put("go");
  until("it has ended", [&] { return is(id, "succeeded"); });
  EXPECT_EQ(task(id)["attempts_made"], 1);
  EXPECT_EQ(runs(), nodes_);
  expect_nothing_ran_twice();
}

TEST_F(ScheduleHosts, ACutLongerThanTheLeaseMovesTheGang) {
  const std::string id = submit(kWaits, {"-n", "2"});
  until("both ranks run", [&] { return runs() == 2; });
  const std::string name = task(id)["attempts"][0]["nodes"][0];
  const size_t lost = name.back() - '0';
  cut(lost);
  until("it runs elsewhere", [&] { return runs() == 4; });
  EXPECT_EQ(task(id)["attempts_made"], 2);
  EXPECT_EQ(task(id)["failures"], 0);
  EXPECT_FALSE(node(lost)["usable"]);
  heal(lost);
  until("the node is back", [&] { return node(lost)["usable"] == true; });
  put("go");
  until("it has ended", [&] { return is(id, "succeeded"); });
  EXPECT_EQ(runs(), 4u);
  expect_nothing_ran_twice();
}

TEST_F(ScheduleHosts, EverythingIsKilledAllTheTime) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRng rng(seed);
  std::vector<std::string> ids;
  for (int number = 0; number < 14; number++) {
    const std::string nodes = fmt::to_string(1 + rng.below(4));
    const std::string priority = fmt::to_string(10 * rng.below(3));
    // Goes on where it was when it was asked to leave; whatever else happens, from the start.
    ids.push_back(
        submit("at=$OUT/at.$FF_TASK.$RANK; step=$(cat $at 2>/dev/null || echo 0);"
               "while [ $step -lt 30 ]; do step=$((step + 1)); sleep 0.1;"
               "  [ ! -e $FF_TASK_DIR/stop ] || { echo $step >$at; leave; }; done",
               {"-n", nodes, "-p", priority}));
  }
  const int64_t end_ns = clock_.steady_ns() + 25 * kSecond;
  while (clock_.steady_ns() < end_ns) {
    clock_.sleep_ns(static_cast<int64_t>(rng.below(1500)) * kMillisecond);
    const uint64_t what = rng.below(10);
    const size_t host = rng.below(nodes_);
    if (what < 4) {
      kill(host);
      clock_.sleep_ns(static_cast<int64_t>(rng.below(1000)) * kMillisecond);
      start(host);
    } else if (what < 6) {
      kill(scheduler_);
      start(scheduler_);
    } else if (what < 8) {
      cut(host);
      clock_.sleep_ns(static_cast<int64_t>(rng.below(4000)) * kMillisecond);
      heal(host);
    } else {
      const auto dirs = rank_dirs(dir_.path());
      if (dirs.empty()) continue;
      const auto state = shim::read_state(disk_, dirs[rng.below(dirs.size())]);
      if (state && state->phase == shim::ShimPhase::running && state->running) {
        (void)::kill(state->running->shim.pid, SIGKILL);
      }
    }
    if (HasFatalFailure()) return;
  }
  until("all tasks have ended", [&] {
    const json all = list();
    return all.size() == ids.size() && std::ranges::all_of(all, [](const json& one) {
             return one["state"] == "succeeded" || one["state"] == "failed";
           });
  });
  for (const json& one : list()) {
    EXPECT_EQ(one["state"], "succeeded") << one.dump(1);
    EXPECT_EQ(one["failures"], 0) << one.dump(1);
  }
  expect_nothing_ran_twice();
}

}  // namespace
}  // namespace ff::cmd
