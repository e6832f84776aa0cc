// Traces and simulation: parsing, and that no task is lost or run twice.
#include "ops/scheduler/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "platform/base/clock.h"

namespace ff::scheduler {
namespace {

SimulationResult run(const SimulatedCluster& cluster, const Trace& trace) {
  SystemClock clock;
  const StopToken stop(clock);
  auto outcome = simulate(cluster, trace, 7, clock, stop);
  EXPECT_TRUE(outcome.ok());
  return *outcome;
}

TEST(Trace, ReadsTheStandardWorkloadFormat) {
  const auto trace = parse_swf(
      "; UnixStartTime: 0\n"
      " 1 10 5 3600 64 -1 -1 64 7200 -1 1 3 1 1 1 1 -1 -1\n"
      "\n"
      "2 4 -1 60 -1 -1 -1 9 -1 -1 1 4 1 1 1 1 -1 -1\r\n"
      "3 0 -1 -1 8 -1 -1 8 100 -1 0 4 1 1 1 1 -1 -1\n",
      8);
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->tasks.size(), 2u);
  EXPECT_EQ(trace->left_out, 1u);  // it never ran
  EXPECT_EQ(trace->tasks[0].submit_ns, 4 * kSecond);
  EXPECT_EQ(trace->tasks[0].nodes, 2u);  // 9 processors on nodes of 8
  EXPECT_EQ(trace->tasks[0].limit_ns, 0);
  EXPECT_EQ(trace->tasks[1].nodes, 8u);
  EXPECT_EQ(trace->tasks[1].limit_ns, 7200 * kSecond);
  EXPECT_EQ(trace->tasks[1].user, 3u);
}

TEST(Trace, NamesTheLineThatIsBroken) {
  const auto swf = parse_swf("; fine\n1 2 3\n", 1);
  ASSERT_FALSE(swf.ok());
  EXPECT_EQ(swf.error().code, Errc::usage);
  EXPECT_NE(swf.error().message.find("line 2"), std::string::npos);
  const auto lines =
      parse_trace_lines("{\"nodes\": 1, \"run_s\": 5}\n{\"nodes\": 1, \"runs\": 5}\n");
  ASSERT_FALSE(lines.ok());
  EXPECT_NE(lines.error().message.find("line 2"), std::string::npos);
  EXPECT_NE(lines.error().message.find("runs"), std::string::npos);
  for (const std::string text : {"[]", "{", "{\"nodes\": -1, \"run_s\": 5}", "{\"run_s\": 5}",
                                 "{\"nodes\": 1, \"run_s\": 5, \"priority\": 31}", "nan nan"}) {
    EXPECT_FALSE(parse_trace_lines(text).ok()) << text;
  }
  EXPECT_FALSE(parse_swf("1 1 1 nan 1 1 1 1 1 1 1 1 1 1 1 1 1 1", 1).ok());
}

TEST(Trace, ReadsLinesOfJson) {
  const auto trace = parse_trace_lines(
      "{\"submit_s\": 9, \"nodes\": 2, \"run_s\": 1.5, \"limit_s\": 60, \"priority\": 50, "
      "\"user\": \"ada\"}\n\n{\"nodes\": 1, \"run_s\": 10}\n");
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->tasks.size(), 2u);
  EXPECT_EQ(trace->tasks[0].nodes, 1u);
  EXPECT_EQ(trace->tasks[0].level, kDefaultLevel);
  EXPECT_EQ(trace->tasks[1].run_ns, 3 * kSecond / 2);
  EXPECT_EQ(trace->tasks[1].level, 5);
}

TEST(Simulate, OneTaskAfterTheOther) {
  Trace trace;
  for (int i = 0; i < 3; i++) trace.tasks.push_back({.run_ns = 100 * kSecond, .nodes = 2});
  const auto outcome = run({.nodes = 2, .zones = 1}, trace);
  EXPECT_EQ(outcome.finished, 3u);
  EXPECT_EQ(outcome.preemptions, 0u);
  EXPECT_DOUBLE_EQ(outcome.utilization, 1);
  EXPECT_DOUBLE_EQ(outcome.wait_s_p50, 100);
  EXPECT_NEAR(outcome.hours, 300 / 3600.0, 1e-9);
}

TEST(Simulate, AnInterruptedTaskGoesOnWhereItSaved) {
  Trace trace;
  trace.tasks.push_back({.run_ns = 1000 * kSecond, .nodes = 2, .level = 0});
  trace.tasks.push_back(
      {.submit_ns = 400 * kSecond, .run_ns = 100 * kSecond, .nodes = 2, .level = 5});
  SimulatedCluster cluster{.nodes = 2, .zones = 1};
  auto outcome = run(cluster, trace);
  EXPECT_EQ(outcome.finished, 2u);
  EXPECT_EQ(outcome.preemptions, 1u);
  EXPECT_DOUBLE_EQ(outcome.lost_node_hours, 0);
  // 1100 s of work, 30 s to save, 60 s to load.
  EXPECT_NEAR(outcome.hours * 3600, 1190, 1);

  cluster.answering = 0;
  outcome = run(cluster, trace);
  EXPECT_NEAR(outcome.lost_node_hours, 2 * 100 / 3600.0, 1e-6);  // it had saved at 300 s
  EXPECT_NEAR(outcome.hours * 3600, 1290, 1);
}

TEST(Simulate, AllFinishWhateverTheTrace) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    Trace trace = synthetic_trace(rng, 300, 64);
    for (TraceTask& task : trace.tasks) {
      task.submit_ns = static_cast<int64_t>(rng.below(20'000)) * kSecond;
      if (rng.below(3) == 0) task.limit_ns = 0;
    }
    std::ranges::sort(trace.tasks, {}, &TraceTask::submit_ns);
    const auto outcome = run({.nodes = 64, .zones = 2, .leaf_nodes = 8, .answering = 0.5}, trace);
    EXPECT_EQ(outcome.finished, 300u);
    EXPECT_LE(outcome.utilization + outcome.overhead, 1 + 1e-9);
  }
}

// Narrow tasks of all levels keep 64 nodes busy; every few hours comes one that needs most of them.
Trace mixed_trace(uint64_t seed, bool with_limits) {
  SeededRng rng(seed);
  Trace trace;
  for (int64_t at_s = 0; at_s < 14 * 86'400; at_s += static_cast<int64_t>(rng.below(500))) {
    const bool is_wide = rng.below(80) == 0;
    TraceTask task{.submit_ns = at_s * kSecond};
    task.nodes = static_cast<uint32_t>(is_wide ? 40 + rng.below(25) : 1 + rng.below(8));
    task.run_ns = static_cast<int64_t>(600 + rng.below(is_wide ? 1200 : 3600)) * kSecond;
    if (with_limits) task.limit_ns = task.run_ns * 5 / 4;
    task.level = rng.below(4) == 0 ? 5 : 3;
    trace.tasks.push_back(task);
  }
  return trace;
}

double median_wait(const Trace& trace, const SimulationResult& outcome, bool is_wide,
                   PriorityLevel level) {
  std::vector<double> waits;
  for (size_t i = 0; i < trace.tasks.size(); i++) {
    if ((trace.tasks[i].nodes > 32) == is_wide && trace.tasks[i].level == level) {
      waits.push_back(outcome.waits_s[i]);
    }
  }
  std::ranges::sort(waits);
  return waits.at(waits.size() / 2);
}

// A task that is wider than a zone waits as it would in a cluster of one zone.
TEST(Simulate, NoTaskWaitsForBeingWiderThanAZone) {
  for (const bool with_limits : {false, true}) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
      SCOPED_TRACE(fmt::format("seed {}, {} limits", seed, with_limits ? "with" : "without"));
      const Trace trace = mixed_trace(seed, with_limits);
      const auto one_zone = run({.nodes = 64, .zones = 1, .leaf_nodes = 8}, trace);
      const auto two_zones = run({.nodes = 64, .zones = 2, .leaf_nodes = 8}, trace);
      EXPECT_EQ(two_zones.finished, trace.tasks.size());
      EXPECT_EQ(one_zone.wide, 0u);
      EXPECT_GT(two_zones.wide, 20u);
      for (const PriorityLevel level : {3, 5}) {
        const double there = median_wait(trace, one_zone, true, level);
        const double here = median_wait(trace, two_zones, true, level);
        EXPECT_LE(here, 2 * there + 60) << "level " << int{level};
      }
    }
  }
}

TEST(Simulate, ABusyClusterIsUsed) {
  SeededRng rng(1);
  const auto outcome = run({.nodes = 1250}, synthetic_trace(rng, 5000, 1250));
  EXPECT_EQ(outcome.finished, 5000u);
  EXPECT_GE(outcome.utilization, 0.97);
}

}  // namespace
}  // namespace ff::scheduler
