// Scheduler state and node health: effects of verdicts, the limit of drained nodes, and when idle
// nodes validate or stay free for tasks, through crashes of both sides and clock changes.
#include <gtest/gtest.h>

#include <functional>

#include "ops/scheduler/simulated_nodes.h"
#include "ops/validate/check.h"

namespace ff::scheduler {
namespace {

using validate::Verdict;

constexpr int64_t kHour = 3600 * kSecond;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kWeek = 7 * kDay;

wire::Verdict verdict(Verdict worst, std::vector<std::string> failed = {},
                      std::vector<std::string> checks = {"memory.pattern", "pci.link"}) {
  wire::Verdict made;
  made.set_verdict(static_cast<uint32_t>(worst));
  for (std::string& one : failed) made.add_failed(std::move(one));
  for (std::string& one : checks) made.add_checks(std::move(one));
  return made;
}

// Idle nodes of a scheduler in virtual time.
class HealthTest : public testing::Test {
 protected:
  void begin(size_t nodes, HealthPolicy health = {.validate_every_ns = kWeek}) {
    health_ = health;
    for (size_t i = 0; i < nodes; i++) told_["n" + std::to_string(i)] = {};
    start();
    all_report();
  }
  // With the stored records.
  void start() {
    state_ = std::make_unique<SchedulerState>("s", SchedulerTimeouts(), health_);
    for (const auto& [name, node] : stored_) state_->load(node);
    for (const auto& [id, task] : stored_tasks_) state_->load(task);
    state_->begin(now());
  }
  void store() {
    const SchedulerState::Changes changed = state_->take_changes();
    for (const std::string& name : changed.nodes) stored_[name] = *state_->node(name);
    for (const uint64_t id : changed.tasks) stored_tasks_[id] = *state_->task(id);
  }
  void report(const std::string& name) {
    wire::SyncRequest request;
    request.mutable_node()->set_name(name);
    request.mutable_node()->set_group("default");
    request.mutable_node()->set_zone(name == "n0" ? "first" : "others");
    request.set_boot(boots_[name]);
    if (told_.at(name).run() != 0) *request.mutable_checks() = told_.at(name);
    ASSERT_TRUE(state_->apply_report(request, now()).ok());
  }
  void all_report() {
    for (const auto& [name, told] : told_) report(name);
  }
  // Agents execute their orders, and the scheduler runs a pass.
  void turn() {
    all_report();
    (void)state_->tick(now());
    for (auto& [name, told] : told_) {
      const uint64_t run = state_->validation_run(name);
      if (run == told.run()) continue;
      told.Clear();
      told.set_run(run);
      told.set_runs(run != 0);
    }
  }
  void pass(int64_t ns) {
    steady_ns_ += ns;
    wall_ns_ += ns;
  }
  std::vector<std::string> validating() const {
    std::vector<std::string> names;
    for (const auto& one : state_->listed_nodes(now())) {
      if (one.validating()) names.push_back(one.node().name());
    }
    return names;
  }
  bool is_usable(const std::string& name) const {
    for (const auto& one : state_->listed_nodes(now())) {
      if (one.node().name() == name) return one.usable();
    }
    return false;
  }
  // Passes time until the node runs its checks.
  bool runs_within(const std::string& name, int64_t within_ns, int64_t step_ns = kHour) {
    for (int64_t passed = 0; passed <= within_ns; passed += step_ns) {
      turn();
      if (state_->validation_run(name) != 0) return true;
      pass(step_ns);
    }
    return false;
  }
  void end_run(const std::string& name, const wire::Verdict& found) {
    told_.at(name).set_runs(false);
    *told_.at(name).mutable_verdict() = found;
    turn();
  }
  VerdictEffect judge(const std::string& name, const wire::Verdict& found) {
    const auto reply = state_->record_verdict(name, found, now());
    EXPECT_TRUE(reply.ok());
    return reply ? static_cast<VerdictEffect>(reply->effect()) : VerdictEffect::none;
  }
  uint64_t submit(uint32_t nodes, const std::string& zone = "", uint32_t priority = 30) {
    wire::SubmitRequest request;
    request.mutable_owner()->set_uid(1000);
    request.mutable_owner()->set_name("ada");
    wire::Spec& spec = *request.mutable_spec();
    spec.add_argv("train");
    spec.set_cwd("/");
    spec.set_group("default");
    spec.set_zone(zone);
    spec.set_nodes(nodes);
    spec.set_processes(1);
    spec.set_priority(priority);
    return state_->submit(std::move(request), SubmittedBy::user, now()).value();
  }
  bool is_out(const std::string& name) const { return state_->node(name)->drained_by_verdict(); }
  SchedulerState::Now now() const { return {.steady_ns = steady_ns_, .wall_ns = wall_ns_}; }

  HealthPolicy health_;
  std::unique_ptr<SchedulerState> state_;
  std::map<std::string, wire::Checks> told_;
  std::map<std::string, std::string> boots_;
  std::map<std::string, wire::Node> stored_;
  std::map<uint64_t, wire::Task> stored_tasks_;
  int64_t steady_ns_ = 1000 * kSecond;
  int64_t wall_ns_ = 1'700'000'000 * kSecond;
};

TEST_F(HealthTest, AVerdictTakesANodeOutAndAPassReturnsIt) {
  begin(3);
  EXPECT_EQ(judge("n1", verdict(Verdict::pass)), VerdictEffect::none);
  EXPECT_TRUE(is_usable("n1"));
  for (const Verdict bad : {Verdict::fail, Verdict::degraded}) {
    EXPECT_EQ(judge("n1", verdict(bad, {"pci.link"})), VerdictEffect::drained);
    EXPECT_FALSE(is_usable("n1"));
    EXPECT_TRUE(is_usable("n0"));
    EXPECT_EQ(judge("n1", verdict(Verdict::could_not_run, {"gpu.health"})), VerdictEffect::none);
    EXPECT_TRUE(is_out("n1"));
    EXPECT_EQ(judge("n1", verdict(Verdict::pass)), VerdictEffect::returned);
    EXPECT_TRUE(is_usable("n1"));
  }
  EXPECT_EQ(judge("n2", verdict(Verdict::could_not_run, {"gpu.health"})), VerdictEffect::none);
  EXPECT_TRUE(is_usable("n2"));
  EXPECT_EQ(state_->node("n2")->verdict_text(), "gpu.health");
  EXPECT_EQ(state_->record_verdict("nowhere", verdict(Verdict::pass), now()).error().code,
            Errc::not_found);
}

TEST_F(HealthTest, OnlyARunThatLooksAtWhatHadFailedReturnsANode) {
  begin(3);
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"pci.link"}, {"pci.link"})),
            VerdictEffect::drained);
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"log.kernel"}, {"log.kernel"})),
            VerdictEffect::none);
  EXPECT_EQ(judge("n1", verdict(Verdict::pass, {}, {"host.cpu"})), VerdictEffect::not_rechecked);
  EXPECT_EQ(judge("n1", verdict(Verdict::pass, {}, {"pci.link", "host.cpu"})),
            VerdictEffect::not_rechecked);
  EXPECT_TRUE(is_out("n1"));
  ASSERT_EQ(state_->node("n1")->failed_size(), 1);
  EXPECT_EQ(state_->node("n1")->failed(0), "log.kernel");
  EXPECT_EQ(judge("n1", verdict(Verdict::pass, {}, {"log.kernel"})), VerdictEffect::returned);
  EXPECT_TRUE(is_usable("n1"));
}

TEST_F(HealthTest, ByHandAndByVerdictAreTwoThings) {
  begin(3);
  ASSERT_TRUE(state_->drain("n1", true, "ticket 42", now()).ok());
  EXPECT_EQ(judge("n1", verdict(Verdict::pass)), VerdictEffect::none);
  EXPECT_FALSE(is_usable("n1"));
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"pci.link"})), VerdictEffect::drained);
  EXPECT_EQ(judge("n1", verdict(Verdict::pass)), VerdictEffect::returned);
  EXPECT_FALSE(is_usable("n1")) << "it is drained by hand still";
  EXPECT_EQ(state_->node("n1")->drained_why(), "ticket 42");
  // Undrain by hand clears both, until the next verdict.
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"pci.link"})), VerdictEffect::drained);
  ASSERT_TRUE(state_->drain("n1", false, "", now()).ok());
  EXPECT_TRUE(is_usable("n1"));
  EXPECT_TRUE(is_used_despite_verdict(*state_->node("n1")));
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"pci.link"})), VerdictEffect::drained);
}

TEST_F(HealthTest, NotTooManyAreDrainedByVerdict) {
  for (const auto& [nodes, percent, most] : {std::tuple<size_t, uint32_t, size_t>(3, 5, 1),
                                             {40, 5, 2},
                                             {59, 5, 2},
                                             {60, 5, 3},
                                             {60, 0, 1},
                                             {4, 100, 4}}) {
    told_.clear();
    stored_.clear();
    begin(nodes, {.validate_every_ns = 0, .max_drained_percent = percent});
    size_t out = 0;
    for (size_t i = 0; i < nodes; i++) {
      const auto reply = state_->record_verdict("n" + std::to_string(i),
                                                verdict(Verdict::fail, {"pci.link"}), now());
      ASSERT_TRUE(reply.ok());
      EXPECT_EQ(reply->most(), most);
      const auto effect = static_cast<VerdictEffect>(reply->effect());
      EXPECT_EQ(effect, i < most ? VerdictEffect::drained : VerdictEffect::limit_reached)
          << i << " of " << nodes;
      out += effect == VerdictEffect::drained ? 1 : 0;
      EXPECT_EQ(reply->out(), out);
    }
    const std::string last = "n" + std::to_string(nodes - 1);
    EXPECT_EQ(is_used_despite_verdict(*state_->node(last)), most < nodes);
    // A drained node may fail again, and makes room when it passes.
    EXPECT_EQ(judge("n0", verdict(Verdict::degraded, {"pci.link"})), VerdictEffect::none);
    EXPECT_EQ(judge("n0", verdict(Verdict::pass)), VerdictEffect::returned);
    EXPECT_EQ(judge(last, verdict(Verdict::fail, {"pci.link"})),
              most < nodes ? VerdictEffect::drained : VerdictEffect::none);
  }
}

TEST_F(HealthTest, WhatHandsOfTheOperatorDrainIsNotCounted) {
  begin(3);
  ASSERT_TRUE(state_->drain("n0", true, "repair", now()).ok());
  EXPECT_EQ(judge("n1", verdict(Verdict::fail, {"pci.link"})), VerdictEffect::drained);
  EXPECT_EQ(judge("n2", verdict(Verdict::fail, {"pci.link"})), VerdictEffect::limit_reached);
}

TEST_F(HealthTest, WarningsAreGiven) {
  begin(2);
  (void)state_->take_notices();
  (void)judge("n0", verdict(Verdict::fail, {"a.a", "a.b", "a.c", "a.d", "a.e", "a.f"}));
  (void)judge("n1", verdict(Verdict::fail, {"pci.link"}));
  (void)judge("n1", verdict(Verdict::could_not_run, {"gpu.health"}));
  const auto notices = state_->take_notices();
  ASSERT_EQ(notices.size(), 3u);
  for (const auto& notice : notices) EXPECT_TRUE(notice.is_warning);
  EXPECT_NE(notices[0].text.find("a.a, a.b, a.c, a.d and 2 more"), std::string::npos)
      << notices[0].text;
  EXPECT_NE(notices[1].text.find("1 of 2 nodes"), std::string::npos) << notices[1].text;
  EXPECT_NE(notices[2].text.find("gpu.health"), std::string::npos) << notices[2].text;
  EXPECT_TRUE(state_->take_notices().empty());
}

TEST_F(HealthTest, WhatIsNoVerdictIsRefused) {
  begin(1);
  const auto refused = [&](const wire::Verdict& found) {
    const auto reply = state_->record_verdict("n0", found, now());
    return !reply && reply.error().code == Errc::usage;
  };
  EXPECT_TRUE(refused(wire::Verdict()));
  wire::Verdict unknown;
  unknown.set_verdict(9);
  EXPECT_TRUE(refused(unknown));
  EXPECT_TRUE(refused(verdict(Verdict::fail))) << "nothing has failed";
  EXPECT_TRUE(refused(verdict(Verdict::fail, {std::string(1000, 'x')})));
  EXPECT_TRUE(refused(verdict(Verdict::pass, {}, std::vector<std::string>(2000, "x"))));
  EXPECT_EQ(state_->node("n0")->validated(), 0);
}

TEST_F(HealthTest, AnAgentCannotSpeakOfItsOwnHealth) {
  begin(1);
  (void)judge("n0", verdict(Verdict::fail, {"pci.link"}));
  wire::SyncRequest request;
  request.mutable_node()->set_name("n0");
  request.mutable_node()->set_group("default");
  request.mutable_node()->set_verdict(1);
  request.mutable_node()->set_last_run(wall_ns_);
  ASSERT_TRUE(state_->apply_report(request, now()).ok());
  EXPECT_TRUE(is_out("n0"));
  EXPECT_EQ(state_->node("n0")->verdict(), static_cast<uint32_t>(Verdict::fail));
  EXPECT_NE(state_->node("n0")->last_run(), wall_ns_);
}

TEST_F(HealthTest, ABusyNodeIsLeftByItsTask) {
  SimulatedNodes world(21, 2);
  wire::Spec spec;
  const uint64_t id = world.submit(spec, {.work_ns = 300 * kSecond});
  for (int i = 0; i < 100 && world.phase(id) != TaskPhase::running; i++) world.step(false);
  ASSERT_EQ(world.phase(id), TaskPhase::running);
  const std::string first = world.scheduler->task(id)->attempts(0).nodes(0);
  const auto reply =
      world.scheduler->record_verdict(first, verdict(Verdict::fail, {"memory.edac"}), world.now());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(world.phase(id), TaskPhase::stopping);
  for (int i = 0; i < 500 && world.scheduler->task(id)->attempts_made() < 2; i++) world.step(false);
  ASSERT_EQ(world.scheduler->task(id)->attempts_made(), 2u);
  EXPECT_NE(world.scheduler->task(id)->attempts(1).nodes(0), first);
  EXPECT_EQ(static_cast<StopReason>(world.scheduler->task(id)->attempts(0).stop()),
            StopReason::drained);
}

// Validations by the scheduler. -------------------------------------------------------------------

TEST_F(HealthTest, EveryIdleNodeRunsOnceAWeekAndNotAllAtOnce) {
  begin(100);
  std::map<std::string, int> runs;
  size_t most = 0;
  std::set<int64_t> days;
  for (int64_t passed = 0; passed < kWeek; passed += 600 * kSecond) {
    turn();
    const auto names = validating();
    most = std::max(most, names.size());
    for (const std::string& name : names) {
      EXPECT_FALSE(is_usable(name));
      runs[name]++;
      days.insert(passed / kDay);
      end_run(name, verdict(Verdict::pass));
      EXPECT_TRUE(is_usable(name));
      told_.at(name).Clear();
    }
    pass(600 * kSecond);
  }
  EXPECT_EQ(runs.size(), 100u);
  for (const auto& [name, count] : runs) EXPECT_EQ(count, 1) << name;
  EXPECT_LE(most, 2u);
  EXPECT_EQ(days.size(), 7u) << "spread over the week";
}

TEST_F(HealthTest, TwoPercentAtOnceAndOneInAnyCase) {
  for (const auto& [nodes, most] : {std::pair<size_t, size_t>(3, 1), {49, 1}, {100, 2}, {260, 5}}) {
    told_.clear();
    stored_.clear();
    begin(nodes);
    turn();
    pass(kWeek - kHour);  // all are due, and nothing has ended
    turn();
    pass(2 * kHour);
    turn();
    turn();
    turn();
    EXPECT_EQ(validating().size(), most) << nodes;
  }
}

TEST_F(HealthTest, NeverMeansNever) {
  begin(10, {.validate_every_ns = 0});
  EXPECT_FALSE(runs_within("n0", 4 * kWeek, kDay));
}

TEST_F(HealthTest, TasksComeFirst) {
  begin(3);
  turn();
  pass(2 * kWeek);  // all are due
  all_report();
  // Two of three nodes are busy; the third matches no waiting task, which needs another zone.
  const uint64_t waiting = submit(3);
  const uint64_t never = submit(50);
  (void)never;
  turn();
  EXPECT_EQ(state_->task(waiting)->phase(), static_cast<uint32_t>(TaskPhase::preparing));
  EXPECT_TRUE(validating().empty()) << "all nodes have a task";
  ASSERT_TRUE(state_->control(waiting, TaskControl::stop, now()).ok());
  turn();
  turn();
  EXPECT_EQ(validating().size(), 1u) << "a task that can never start keeps nobody waiting";
}

TEST_F(HealthTest, ANodeThatAWaitingTaskCouldHaveIsLeftToIt) {
  begin(3);
  turn();
  pass(2 * kWeek);
  all_report();
  // Its other node is away: it waits, and n1 and n2 stay free for it.
  ASSERT_TRUE(state_->drain("n1", true, "repair", now()).ok());
  const uint64_t id = submit(2, "others");
  turn();
  EXPECT_EQ(state_->task(id)->phase(), static_cast<uint32_t>(TaskPhase::queued));
  EXPECT_EQ(validating(), std::vector<std::string>{"n0"}) << "of another zone";
  end_run("n0", verdict(Verdict::pass));
  for (int i = 0; i < 5; i++) turn();
  EXPECT_TRUE(validating().empty());
  ASSERT_TRUE(state_->control(id, TaskControl::stop, now()).ok());
  turn();
  EXPECT_EQ(validating(), std::vector<std::string>{"n2"}) << "n1 is in the operator's hands";
}

TEST_F(HealthTest, WhoWaitsForANodeThatIsValidatedIsToldSo) {
  begin(1);
  ASSERT_TRUE(runs_within("n0", kWeek));
  const uint64_t id = submit(1);
  turn();
  EXPECT_EQ(state_->task(id)->phase(), static_cast<uint32_t>(TaskPhase::queued));
  ASSERT_TRUE(state_->waiting(id).has_value());
  EXPECT_EQ(state_->waiting(id)->validating(), 1u);
  end_run("n0", verdict(Verdict::pass));
  turn();
  EXPECT_EQ(state_->task(id)->phase(), static_cast<uint32_t>(TaskPhase::preparing));
}

TEST_F(HealthTest, AVerdictOfARunDrainsAndTheDayAfterItIsLookedAtAgain) {
  begin(3);
  ASSERT_TRUE(runs_within("n1", kWeek));
  end_run("n1", verdict(Verdict::fail, {"memory.pattern"}));
  EXPECT_TRUE(is_out("n1"));
  EXPECT_FALSE(is_usable("n1"));
  // The waiting task does not prevent it: it cannot use this node.
  (void)submit(3);
  pass(kDay - kHour);
  turn();
  EXPECT_EQ(state_->validation_run("n1"), 0u);
  pass(kHour);
  turn();
  turn();
  ASSERT_NE(state_->validation_run("n1"), 0u);
  end_run("n1", verdict(Verdict::could_not_run, {"memory.pattern"}));
  EXPECT_TRUE(is_out("n1"));
  ASSERT_TRUE(runs_within("n1", 2 * kDay));
  end_run("n1", verdict(Verdict::pass));
  EXPECT_FALSE(is_out("n1"));
}

TEST_F(HealthTest, ARunThatDoesNotEndIsNoVerdict) {
  begin(1);
  ASSERT_TRUE(runs_within("n0", kWeek));
  (void)state_->take_notices();
  pass(health_.validate_timeout_ns - kSecond);
  turn();
  EXPECT_NE(state_->validation_run("n0"), 0u);
  EXPECT_EQ(state_->tick(now()), now().steady_ns + kSecond);
  pass(kSecond);
  all_report();
  (void)state_->tick(now());
  EXPECT_EQ(state_->validation_run("n0"), 0u);
  EXPECT_EQ(state_->take_nodes_with_new_orders().count("n0"), 1u) << "its agent is told";
  // Until its agent reports that nothing runs.
  EXPECT_FALSE(is_usable("n0"));
  told_.at("n0").Clear();
  report("n0");
  EXPECT_TRUE(is_usable("n0"));
  EXPECT_EQ(state_->node("n0")->verdict(), static_cast<uint32_t>(Verdict::could_not_run));
  const auto notices = state_->take_notices();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_TRUE(notices[0].is_warning);
  EXPECT_NE(notices[0].text.find("no end within 1h"), std::string::npos) << notices[0].text;
  EXPECT_FALSE(runs_within("n0", kWeek - kDay)) << "not over and over";
}

TEST_F(HealthTest, AnAgentThatStartsAnewIsToldAgain) {
  begin(1);
  ASSERT_TRUE(runs_within("n0", kWeek));
  const uint64_t run = state_->validation_run("n0");
  told_.at("n0").Clear();
  turn();
  EXPECT_EQ(state_->validation_run("n0"), run);
  EXPECT_EQ(told_.at("n0").run(), run);
  end_run("n0", verdict(Verdict::pass));
  EXPECT_EQ(state_->validation_run("n0"), 0u);
}

TEST_F(HealthTest, AMachineThatFallsDownUnderItsChecksDoesNotDoSoForEver) {
  begin(1);
  boots_["n0"] = "one";
  turn();
  ASSERT_TRUE(runs_within("n0", kWeek));
  boots_["n0"] = "two";
  told_.at("n0").Clear();
  turn();
  EXPECT_EQ(state_->validation_run("n0"), 0u);
  EXPECT_EQ(state_->node("n0")->verdict_text(), "the machine was rebooted meanwhile");
}

TEST_F(HealthTest, ASchedulerThatStartsAnewGoesOnWithWhatRuns) {
  begin(3);
  ASSERT_TRUE(runs_within("n1", kWeek));
  const uint64_t run = state_->validation_run("n1");
  store();
  start();
  EXPECT_TRUE(validating().empty());
  all_report();
  EXPECT_EQ(validating(), std::vector<std::string>{"n1"});
  EXPECT_EQ(state_->validation_run("n1"), run);
  (void)state_->tick(now());
  EXPECT_EQ(validating().size(), 1u) << "and begins no more than it may";
  // It ended while the scheduler was down.
  told_.at("n1").set_runs(false);
  *told_.at("n1").mutable_verdict() = verdict(Verdict::fail, {"pci.link"});
  start();
  all_report();
  EXPECT_TRUE(is_out("n1"));
  // Not stored: it is reported again, and stored in the end.
  start();
  EXPECT_FALSE(is_out("n1"));
  all_report();
  EXPECT_TRUE(is_out("n1"));
  store();
  told_.at("n1").Clear();
  start();
  all_report();
  EXPECT_TRUE(is_out("n1"));
  EXPECT_EQ(state_->node("n1")->failed(0), "pci.link");
}

TEST_F(HealthTest, AnOldAnswerIsNotTakenTwice) {
  begin(3);
  ASSERT_TRUE(runs_within("n1", kWeek));
  told_.at("n1").set_runs(false);
  *told_.at("n1").mutable_verdict() = verdict(Verdict::fail, {"pci.link"});
  report("n1");
  ASSERT_TRUE(is_out("n1"));
  ASSERT_TRUE(state_->drain("n1", false, "", now()).ok());
  report("n1");  // it has not received the reply yet
  EXPECT_FALSE(is_out("n1"));
}

TEST_F(HealthTest, AnAnswerOfAnEarlierRunIsNoneToThisOne) {
  begin(3);
  ASSERT_TRUE(runs_within("n1", kWeek));
  wire::Checks late = told_.at("n1");
  late.set_runs(false);
  *late.mutable_verdict() = verdict(Verdict::fail, {"pci.link"});
  pass(health_.validate_timeout_ns);
  ASSERT_TRUE(runs_within("n1", 2 * kWeek));
  ASSERT_NE(state_->validation_run("n1"), late.run());
  told_.at("n1") = late;
  report("n1");
  EXPECT_NE(state_->validation_run("n1"), 0u);
  EXPECT_FALSE(is_out("n1"));
}

TEST_F(HealthTest, AClockThatIsSetBackPutsNothingOff) {
  begin(1);
  ASSERT_TRUE(runs_within("n0", kWeek));
  end_run("n0", verdict(Verdict::pass));
  wall_ns_ -= 300 * kDay;
  turn();
  EXPECT_LE(state_->node("n0")->validated(), wall_ns_);
  EXPECT_FALSE(runs_within("n0", kWeek - kDay)) << "nor does it hurry anything";
  EXPECT_TRUE(runs_within("n0", kDay));
}

TEST_F(HealthTest, ASilentNodeIsNotToldToRun) {
  for (const auto& [silent, other] : {std::pair("n0", "n1"), {"n1", "n0"}}) {
    told_.clear();
    stored_.clear();
    begin(2);
    turn();
    pass(2 * kWeek);
    report(other);
    (void)state_->tick(now());
    EXPECT_EQ(validating(), std::vector<std::string>{other}) << silent << " is silent";
  }
}

// Under faults: no rank runs on a node that validates itself, and no task is lost.
TEST(SchedulerStateHealth, ChecksAndTasksNeverShareANode) {
  uint64_t runs = 0;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedNodes world(seed, 6,
                         {.validate_every_ns = 300 * kSecond, .validate_timeout_ns = 60 * kSecond});
    for (int i = 0; i < 600; i++) {
      if (world.rng.below(40) == 0) {
        wire::Spec one;
        one.set_nodes(1 + static_cast<uint32_t>(world.rng.below(5)));
        one.set_restarts(1000);
        world.submit(one, {.work_ns = static_cast<int64_t>(1 + world.rng.below(100)) * kSecond});
      }
      world.step(true);
      if (testing::Test::HasFailure()) return;
    }
    for (int i = 0; i < 20'000 && !world.all_finished(); i++) world.step(false);
    ASSERT_TRUE(world.all_finished());
    for (const auto& node : world.nodes) runs += node->runs_begun();
  }
  EXPECT_GT(runs, 300u);
}

}  // namespace
}  // namespace ff::scheduler
