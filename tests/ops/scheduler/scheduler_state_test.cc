// Scheduler state: the states of a task; whatever happens to agents, nodes and the scheduler, no
// task is lost and none runs twice at a time.
#include "ops/scheduler/scheduler_state.h"

#include <gtest/gtest.h>

#include <functional>

#include "ops/scheduler/simulated_nodes.h"

namespace ff::scheduler {
namespace {

constexpr uint64_t kBookSeeds = 500;

wire::Spec spec(uint32_t nodes, uint32_t priority = 30) {
  wire::Spec spec;
  spec.set_nodes(nodes);
  spec.set_priority(priority);
  return spec;
}

// Steps until the condition holds, at most `steps` times.
bool until(SimulatedNodes& world, const std::function<bool()>& holds, int steps = 2000) {
  for (int i = 0; i < steps && !holds(); i++) world.step(false);
  return holds();
}

const wire::Attempt& last_attempt(const SimulatedNodes& world, uint64_t id) {
  return *world.scheduler->task(id)->attempts().rbegin();
}

TEST(SchedulerState, ATaskFromQueueToEnd) {
  SimulatedNodes world(1, 4);
  const uint64_t id = world.submit(spec(3), {.work_ns = 100 * kSecond});
  EXPECT_EQ(world.phase(id), TaskPhase::queued);
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
  EXPECT_EQ(last_attempt(world, id).nodes_size(), 3);
  EXPECT_EQ(last_attempt(world, id).port(), 29'500u);
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::finished; }));
  EXPECT_EQ(world.outcome(id), TaskOutcome::succeeded);
  EXPECT_EQ(world.scheduler->task(id)->attempts_made(), 1u);
  EXPECT_GE(world.scheduler->task(id)->used(), 3 * 100 * kSecond);
  EXPECT_EQ(world.scheduler->task(id)->lost(), 0);
  // Agents are ordered to clean it up.
  ASSERT_TRUE(until(world, [&] {
    for (const auto& node : world.nodes) {
      if (!node->held().empty()) return false;
    }
    return true;
  }));
}

TEST(SchedulerState, AnInterruptedTaskSavesAndGoesOn) {
  SimulatedNodes world(2, 2);
  const uint64_t low = world.submit(spec(2, 10), {.work_ns = 500 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(low) == TaskPhase::running; }));
  for (int i = 0; i < 100; i++) world.step(false);
  const uint64_t high = world.submit(spec(1, 50), {.work_ns = 50 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(low) == TaskPhase::stopping; }));
  EXPECT_EQ(last_attempt(world, low).stop_for(), high);
  ASSERT_TRUE(until(world, [&] { return world.phase(low) == TaskPhase::queued; }));
  const wire::Attempt first = last_attempt(world, low);
  EXPECT_NE(first.acked(), 0);
  EXPECT_EQ(first.terminated(), 0);
  EXPECT_GE(first.acked(), first.asked());
  ASSERT_TRUE(until(world, [&] { return world.all_finished(); }));
  EXPECT_EQ(world.outcome(low), TaskOutcome::succeeded);
  EXPECT_EQ(world.scheduler->task(low)->attempts_made(), 2u);
}

TEST(SchedulerState, WhoDoesNotAnswerIsEnded) {
  for (const bool obeys : {true, false}) {
    SimulatedNodes world(3, 1);
    const uint64_t id =
        world.submit(spec(1), {.work_ns = 9000 * kSecond, .answers = false, .obeys = obeys});
    ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
    ASSERT_TRUE(world.scheduler->control(id, TaskControl::stop, world.now()).ok());
    ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::finished; }));
    const wire::Attempt& tried = last_attempt(world, id);
    EXPECT_EQ(world.outcome(id), TaskOutcome::stopped);
    EXPECT_EQ(tried.acked(), 0);
    EXPECT_GE(tried.terminated() - tried.asked(), world.timeouts.ack_ns);
    EXPECT_EQ(tried.killed() != 0, !obeys);
    if (!obeys) {
      EXPECT_GE(tried.killed() - tried.terminated(), world.timeouts.term_ns);
    }
  }
}

TEST(SchedulerState, ANodeRidOfWhatNobodyWantsIsLookedAtAtOnce) {
  SchedulerState scheduler("store", {});
  SchedulerState::Now now{.steady_ns = 1000 * kSecond, .wall_ns = 1000 * kSecond};
  scheduler.begin(now);
  wire::SyncRequest told;
  told.mutable_node()->set_name("n1");
  told.mutable_node()->set_group("gpu");
  wire::Held& stray = *told.add_held();
  stray.set_task(77);
  stray.set_attempt(1);
  stray.add_ranks()->set_state(static_cast<uint32_t>(RankState::running));
  const auto reports = [&] {
    now.steady_ns += kSecond;
    now.wall_ns += kSecond;
    return scheduler.apply_report(told, now).ok();
  };
  ASSERT_TRUE(reports());
  wire::SubmitRequest request;
  *request.mutable_spec() = spec(1);
  request.mutable_spec()->set_group("gpu");
  request.mutable_spec()->set_processes(1);
  request.mutable_spec()->set_cwd("/");
  request.mutable_spec()->add_argv("true");
  request.mutable_owner()->set_name("ann");
  request.mutable_owner()->set_uid(1000);
  const uint64_t id = scheduler.submit(request, SubmittedBy::user, now).value();
  scheduler.tick(now);
  EXPECT_EQ(phase_of(*scheduler.task(id)), TaskPhase::queued);
  ASSERT_TRUE(reports());
  EXPECT_FALSE(scheduler.needs_pass());  // it is still running
  told.clear_held();
  ASSERT_TRUE(reports());
  EXPECT_TRUE(scheduler.needs_pass());
  scheduler.tick(now);
  EXPECT_EQ(phase_of(*scheduler.task(id)), TaskPhase::preparing);
  ASSERT_TRUE(reports());
  EXPECT_FALSE(scheduler.needs_pass());
}

TEST(SchedulerState, AGangThatHangsIsEndedAndTheFirstOfItIsNamed) {
  SchedulerState scheduler("store", {});
  SchedulerState::Now now{.steady_ns = 1000 * kSecond, .wall_ns = 1000 * kSecond};
  scheduler.begin(now);
  std::vector<wire::SyncRequest> told(2);
  const auto report = [&] {
    now.steady_ns += kSecond;
    now.wall_ns += kSecond;
    for (const wire::SyncRequest& one : told) EXPECT_TRUE(scheduler.apply_report(one, now).ok());
    scheduler.tick(now);
  };
  for (size_t i = 0; i < told.size(); i++) {
    told[i].mutable_node()->set_name("n" + std::to_string(i));
    told[i].mutable_node()->set_group("default");
  }
  report();
  wire::SubmitRequest request;
  *request.mutable_spec() = spec(2);
  request.mutable_spec()->set_group("default");
  request.mutable_spec()->set_processes(2);
  request.mutable_spec()->set_cwd("/");
  request.mutable_spec()->add_argv("train");
  request.mutable_spec()->set_hang(60 * kSecond);
  request.mutable_owner()->set_name("ann");
  request.mutable_owner()->set_uid(1000);
  const uint64_t id = scheduler.submit(request, SubmittedBy::user, now).value();
  scheduler.tick(now);
  const std::string first_node = scheduler.task(id)->attempts(0).nodes(0);
  // Silence of its ranks: two per node, in the order of ranks.
  const auto runs = [&](std::vector<int64_t> silent_s) {
    for (wire::SyncRequest& one : told) {
      one.clear_held();
      wire::Held& held = *one.add_held();
      held.set_task(id);
      held.set_attempt(1);
      held.set_port(29'500);
      held.set_prepared(true);
      const size_t base = one.node().name() == first_node ? 0 : 2;
      for (uint32_t local = 0; local < 2; local++) {
        wire::Rank& rank = *held.add_ranks();
        rank.set_local(local);
        rank.set_state(
            static_cast<uint32_t>(silent_s.empty() ? RankState::waiting : RankState::running));
        if (silent_s.empty()) continue;
        rank.set_silent(silent_s[base + local] * kSecond);
        rank.set_step(100 + base + local);
      }
    }
    report();
  };
  runs({});
  EXPECT_EQ(phase_of(*scheduler.task(id)), TaskPhase::running);
  for (int i = 0; i < 100; i++) runs({500, 500, 500, 5});
  EXPECT_EQ(phase_of(*scheduler.task(id)), TaskPhase::running);  // one rank still prints
  runs({61, 62, 99, 60});
  const wire::Attempt& tried = scheduler.task(id)->attempts(0);
  EXPECT_EQ(phase_of(*scheduler.task(id)), TaskPhase::stopping);
  EXPECT_EQ(stop_reason_of(tried), StopReason::hang);
  EXPECT_EQ(tried.stop_text(), "no rank has printed or reported a step for 1m; rank 2 on node " +
                                   tried.nodes(1) + " was the first to become silent, at step 102");
}

TEST(SchedulerState, OfFinishedTasksTheNewestAreKept) {
  SimulatedNodes world(4, 1);
  world.timeouts.max_finished_tasks = 3;
  world.start_scheduler();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 6; i++) {
    ids.push_back(world.submit(spec(1), {.work_ns = 9000 * kSecond}));
    world.step(false);
  }
  // The last task ends first, and its id is not reused.
  for (const int which : {5, 0, 1, 2, 3}) {
    world.steady_ns += kSecond;
    ASSERT_TRUE(world.scheduler->control(ids[which], TaskControl::stop, world.now()).ok());
    ASSERT_TRUE(until(world, [&] { return world.phase(ids[which]) == TaskPhase::finished; }));
  }
  world.scheduler->tick(world.now());
  const auto dropped = world.scheduler->take_changes().dropped;
  EXPECT_FALSE(world.scheduler->tasks().contains(ids[0]));
  EXPECT_FALSE(world.scheduler->tasks().contains(ids[1]));
  for (const int which : {2, 3, 4, 5}) {
    EXPECT_TRUE(world.scheduler->tasks().contains(ids[which])) << which;
  }
}

TEST(SchedulerState, SuspendAndResume) {
  SimulatedNodes world(4, 1);
  const uint64_t id = world.submit(spec(1), {.work_ns = 300 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
  EXPECT_EQ(world.scheduler->control(id, TaskControl::resume, world.now()).error().code,
            Errc::refused);
  ASSERT_TRUE(world.scheduler->control(id, TaskControl::suspend, world.now()).ok());
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::suspended; }));
  for (int i = 0; i < 50; i++) world.step(false);
  EXPECT_EQ(world.phase(id), TaskPhase::suspended);
  ASSERT_TRUE(world.scheduler->control(id, TaskControl::resume, world.now()).ok());
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::finished; }));
  EXPECT_EQ(world.outcome(id), TaskOutcome::succeeded);
  EXPECT_EQ(world.scheduler->control(id, TaskControl::stop, world.now()).error().code,
            Errc::refused);
  EXPECT_EQ(world.scheduler->control(99, TaskControl::stop, world.now()).error().code,
            Errc::not_found);
}

TEST(SchedulerState, FailuresAreTriedAgainAsOftenAsAsked) {
  for (const int fails : {2, 3}) {
    SimulatedNodes world(5, 2);
    wire::Spec two = spec(2);
    two.set_restarts(2);
    // Both ranks share the number of failures.
    const uint64_t id = world.submit(two, {.work_ns = 100 * kSecond, .fails = fails * 2});
    ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::finished; }));
    EXPECT_EQ(world.outcome(id), fails == 2 ? TaskOutcome::succeeded : TaskOutcome::failed);
    EXPECT_EQ(world.scheduler->task(id)->attempts_made(), 3u);
  }
}

TEST(SchedulerState, ItsTimeIsOver) {
  SimulatedNodes world(6, 1);
  wire::Spec limited = spec(1);
  limited.set_limit(60 * kSecond);
  const uint64_t id = world.submit(limited, {.work_ns = 9000 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::finished; }));
  EXPECT_EQ(world.outcome(id), TaskOutcome::stopped);
  EXPECT_EQ(static_cast<StopReason>(last_attempt(world, id).stop()), StopReason::limit);
}

TEST(SchedulerState, ASilentNodeHasItsLeaseBeforeTheTaskGoesElsewhere) {
  SimulatedNodes world(7, 2);
  const uint64_t id = world.submit(spec(1), {.work_ns = 400 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
  const std::string lost = last_attempt(world, id).nodes(0);
  SimulatedNode& node = *world.nodes[lost == "n0" ? 0 : 1];
  const int64_t cut_ns = world.steady_ns;
  node.cut = true;
  while (world.scheduler->task(id)->attempts_made() == 1) {
    world.steady_ns += kSecond;
    for (auto& one : world.nodes) {
      one->pass(world.steady_ns, world.tasks);
      if (one.get() != &node) world.sync(*one);
    }
    (void)world.scheduler->tick(world.now());
    world.keep();
    world.check();
    ASSERT_LT(world.steady_ns - cut_ns, 1000 * kSecond);
  }
  EXPECT_GE(world.steady_ns - cut_ns, world.timeouts.lease_ns);
  EXPECT_TRUE(node.live_ranks().empty());
  EXPECT_NE(last_attempt(world, id).nodes(0), lost);
}

TEST(SchedulerState, ANodeThatStartsAnewGivesItsTaskBackAtOnce) {
  SimulatedNodes world(8, 2);
  const uint64_t id = world.submit(spec(2), {.work_ns = 400 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
  const int64_t began_ns = world.steady_ns;
  world.nodes[1]->reboot();
  ASSERT_TRUE(until(world, [&] { return world.scheduler->task(id)->attempts_made() == 2; }));
  EXPECT_LT(world.steady_ns - began_ns, world.timeouts.lease_ns);
}

TEST(SchedulerState, ADrainedNodeGetsNothingAndGivesUpWhatItHas) {
  SimulatedNodes world(9, 2);
  const uint64_t id = world.submit(spec(1), {.work_ns = 300 * kSecond});
  ASSERT_TRUE(until(world, [&] { return world.phase(id) == TaskPhase::running; }));
  const std::string first = last_attempt(world, id).nodes(0);
  ASSERT_TRUE(world.scheduler->drain(first, true, "bad memory", world.now()).ok());
  ASSERT_TRUE(until(world, [&] { return world.scheduler->task(id)->attempts_made() == 2; }));
  EXPECT_NE(last_attempt(world, id).nodes(0), first);
  const uint64_t both = world.submit(spec(2, 50), {.work_ns = kSecond});
  for (int i = 0; i < 20; i++) world.step(false);
  EXPECT_EQ(world.scheduler->waiting(both)->why(),
            static_cast<uint32_t>(WaitReason::nodes_unavailable));
  ASSERT_TRUE(world.scheduler->drain(first, false, {}, world.now()).ok());
  ASSERT_TRUE(until(world, [&] { return world.phase(both) == TaskPhase::finished; }));
  EXPECT_EQ(world.scheduler->drain("nowhere", true, {}, world.now()).error().code, Errc::not_found);
}

TEST(SchedulerState, WhatIsAskedForIsLookedAt) {
  SimulatedNodes world(10, 1);
  const auto refused = [&](const std::function<void(wire::Spec&)>& spoil) {
    wire::SubmitRequest request;
    request.mutable_owner()->set_name("ada");
    wire::Spec& one = *request.mutable_spec();
    one = spec(1);
    one.add_argv("train");
    one.set_cwd("/");
    one.set_group("default");
    one.set_processes(1);
    spoil(one);
    const auto id = world.scheduler->submit(std::move(request), SubmittedBy::user, world.now());
    return !id && id.error().code == Errc::usage;
  };
  EXPECT_FALSE(refused([](wire::Spec&) {}));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.clear_argv(); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.add_argv(std::string("a\0b", 3)); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.add_argv(std::string(300'000, 'x')); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.add_env("=x"); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.set_cwd("here"); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.set_nodes(0); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.set_processes(0); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.set_priority(31); }));
  EXPECT_TRUE(refused([](wire::Spec& one) { one.set_limit(-1); }));
  const std::string longest(5000, 'n');
  EXPECT_TRUE(refused([&](wire::Spec& one) { one.set_name(longest); }));
  EXPECT_TRUE(refused([&](wire::Spec& one) { one.set_cwd("/" + longest); }));
  EXPECT_TRUE(refused([&](wire::Spec& one) { one.set_group(longest); }));
  EXPECT_TRUE(refused([&](wire::Spec& one) { one.set_zone(longest); }));
  EXPECT_TRUE(refused([&](wire::Spec& one) { one.add_marks(longest); }));
  EXPECT_TRUE(refused([](wire::Spec& one) {
    for (int i = 0; i < 101; i++) one.add_marks("a=b");
  }));
  // Few bytes, and much memory.
  EXPECT_TRUE(refused([](wire::Spec& one) {
    for (int i = 0; i < 40'000; i++) one.add_argv("");
  }));
}

TEST(SchedulerState, TheSameRequestAgainIsTheSameTask) {
  SimulatedNodes world(11, 1);
  wire::SubmitRequest request;
  request.mutable_owner()->set_name("ada");
  wire::Spec& one = *request.mutable_spec();
  one = spec(1);
  one.add_argv("train");
  one.set_cwd("/");
  one.set_group("default");
  one.set_processes(1);
  request.set_once("0123456789abcdef");
  const auto id = world.scheduler->submit(request, SubmittedBy::user, world.now());
  world.keep();
  world.start_scheduler();
  EXPECT_EQ(*world.scheduler->submit(request, SubmittedBy::user, world.now()), *id);
  request.set_once("another");
  EXPECT_NE(*world.scheduler->submit(request, SubmittedBy::user, world.now()), *id);
}

TEST(SchedulerState, AnAgentFollowsOneScheduler) {
  SimulatedNodes world(12, 1);
  wire::SyncRequest request = world.nodes[0]->request();
  request.set_scheduler("another");
  EXPECT_EQ(world.scheduler->apply_report(request, world.now()).error().code, Errc::refused);
}

TEST(SchedulerState, WhatNobodyWantsIsEndedAndThenForgotten) {
  SimulatedNodes world(13, 1);
  wire::SyncRequest request = world.nodes[0]->request();
  wire::Held& held = *request.add_held();
  held.set_task(77);
  held.set_attempt(3);
  held.add_ranks()->set_state(static_cast<uint32_t>(RankState::running));
  for (const auto& [state, action] : {std::pair(RankState::running, OrderAction::kill),
                                      std::pair(RankState::exited, OrderAction::clean_up)}) {
    request.mutable_held(0)->mutable_ranks(0)->set_state(static_cast<uint32_t>(state));
    ASSERT_TRUE(world.scheduler->apply_report(request, world.now()).ok());
    const auto orders = world.scheduler->orders("n0");
    ASSERT_EQ(orders.size(), 1u);
    EXPECT_EQ(orders[0].task(), 77u);
    EXPECT_EQ(orders[0].attempt(), 3u);
    EXPECT_EQ(orders[0].action(), static_cast<uint32_t>(action));
    // Meanwhile it gets no other task.
    EXPECT_EQ(world.scheduler->listed_nodes(world.now())[0].usable(), state != RankState::running);
  }
}

TEST(SchedulerState, NothingIsLostAndNothingRunsTwice) {
  uint64_t interrupted = 0;
  for (uint64_t seed = 1; seed <= kBookSeeds; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedNodes world(seed, 6);
    for (int i = 0; i < 600; i++) {
      if (world.rng.below(40) == 0) {
        const uint32_t priority = kPriorities[world.rng.below(kPriorityLevels)];
        wire::Spec one = spec(1 + static_cast<uint32_t>(world.rng.below(5)), priority);
        world.submit(one, {.work_ns = static_cast<int64_t>(1 + world.rng.below(200)) * kSecond,
                           .answers = world.rng.below(3) != 0,
                           .obeys = world.rng.below(3) != 0});
      }
      world.step(true);
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(until(
        world, [&] { return world.all_finished(); }, 20'000));
    for (const auto& [id, task] : world.tasks) {
      EXPECT_EQ(world.outcome(id), TaskOutcome::succeeded) << "task " << id;
      for (const wire::Attempt& one : world.scheduler->task(id)->attempts()) {
        interrupted += static_cast<StopReason>(one.stop()) == StopReason::preempted ? 1 : 0;
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(interrupted, kBookSeeds);
}

}  // namespace
}  // namespace ff::scheduler
