// Retention: the rules, the checkpoints that stay in any case, and crashes at any point, which
// leave complete checkpoints and a readable `latest`.
#include "training/checkpoint/retention/forget.h"

#include <gtest/gtest.h>

#include "platform/base/point_step.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/retention/maintenance.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

// Each step shares a file with the others and has one of its own; an hour between them.
void save_steps(SimStore& sim, const std::vector<uint64_t>& steps,
                const std::string& run = "default") {
  for (const uint64_t step : steps) {
    FF_ASSERT_OK(
        sim.save({{"own", noise(step, 4000)}, {"same", noise(0, 4000)}}, step, {.run = run}));
    sim.clock.advance(kHour);
  }
}

void verify_step(SimStore& sim, uint64_t step) {
  FF_ASSERT_OK(sim.verify({.names = {fmt::format("default@{}", step)}}));
  ASSERT_TRUE(sim.verified(step));
}

void break_step(SimStore& sim, uint64_t step) {
  const auto chunk = sim.chunks_of(step).at(0);
  FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(chunk), 8 * 4200));
}

std::vector<uint64_t> forgotten(const ForgetReport& report) {
  std::vector<uint64_t> steps;
  for (const auto& name : report.forgotten) steps.push_back(name.step);
  return steps;
}

// "1: last 2, every 3; 5: ..."
std::string kept(const ForgetReport& report) {
  std::string text;
  for (const auto& step : report.kept) {
    text += (text.empty() ? "" : "; ") + std::to_string(step.name.step) + ": ";
    for (size_t i = 0; i < step.reasons.size(); i++) text += (i > 0 ? ", " : "") + step.reasons[i];
  }
  return text;
}

TEST(ForgetTest, TheRulesAddUp) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3, 4, 5, 6, 7, 8});
  verify_step(sim, 8);
  const auto report = sim.forget(
      {.keep_last = 2, .keep_every = 3, .keep_within_ns = 3 * kHour + kHour / 2, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(kept(*report),
            "3: every 3; 6: every 3, within 3h30m; 7: last 2, within 3h30m; "
            "8: last 2, within 3h30m, newest verified");
  EXPECT_EQ(forgotten(*report), (std::vector<uint64_t>{1, 2, 4, 5}));
  EXPECT_TRUE(report->applied);
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{3, 6, 7, 8}));
  EXPECT_EQ(sim.entries("trash"), 0u);
  EXPECT_EQ(sim.chunks(), 9u);  // what they used stays until prune
  EXPECT_TRUE(sim.sound());
}

TEST(ForgetTest, WithoutApplyItOnlyPlans) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3});
  verify_step(sim, 3);
  const uint64_t before = sim.disk.mutations();
  const auto report = sim.forget({.keep_last = 1});
  FF_ASSERT_OK(report);
  EXPECT_EQ(forgotten(*report), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(report->applied);
  EXPECT_EQ(sim.steps().size(), 3u);
  EXPECT_EQ(sim.disk.mutations(), before);
}

TEST(ForgetTest, TheNewestVerifiedStays) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3, 4, 5});
  verify_step(sim, 2);
  verify_step(sim, 3);
  const auto report = sim.forget({.keep_last = 1, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(kept(*report), "3: newest verified; 5: last 1");
  EXPECT_FALSE(sim.verified(5));  // nothing was read that need not be
  const auto nothing = sim.forget({.keep_last = 0, .apply = true});
  FF_ASSERT_OK(nothing);
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{3}));
  const auto latest = latest_step(sim.disk, sim.open(), "default");
  FF_ASSERT_OK(latest);
  EXPECT_EQ(latest->step, 3u);
  EXPECT_EQ(read_latest(sim.disk, sim.open(), "default")->step, 3u);
  EXPECT_TRUE(sim.sound());
}

TEST(ForgetTest, WithoutAVerifiedStepTheNewestIsVerifiedFirst) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3, 4});
  const auto report = sim.forget({.keep_last = 2});
  FF_ASSERT_OK(report);
  EXPECT_EQ(kept(*report), "3: last 2; 4: last 2, newest verified");
  EXPECT_TRUE(sim.verified(4));
}

TEST(ForgetTest, IfTheNewestIsDamagedTheNextOlderIsVerified) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3, 4});
  break_step(sim, 4);
  break_step(sim, 3);
  const auto report = sim.forget({.keep_last = 1, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(kept(*report), "2: newest verified; 4: last 1");
  EXPECT_TRUE(sim.verified(2));
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{2, 4}));
}

TEST(ForgetTest, DamageFoundLaterRemovesTheMark) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3});
  verify_step(sim, 2);
  verify_step(sim, 3);
  break_step(sim, 3);
  FF_ASSERT_OK(sim.verify({.all = true}));
  EXPECT_FALSE(sim.verified(3));
  const auto report = sim.forget({.keep_last = 0});
  FF_ASSERT_OK(report);
  EXPECT_EQ(kept(*report), "2: newest verified");
  FF_ASSERT_OK(sim.forget({.steps = {"default@3"}, .apply = true}));
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{1, 2}));
}

TEST(ForgetTest, WithoutAnIntactStepNothingIsForgotten) {
  SimStore sim(1);
  save_steps(sim, {1, 2});
  break_step(sim, 1);
  break_step(sim, 2);
  const auto report = sim.forget({.keep_last = 1, .apply = true});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->blocked.size(), 1u);
  EXPECT_EQ(report->blocked[0].run, "default");
  EXPECT_EQ(report->blocked[0].checkpoints, 2u);
  EXPECT_TRUE(report->forgotten.empty());
  EXPECT_EQ(sim.steps().size(), 2u);
  EXPECT_EQ(sim.forget({.steps = {"@1"}, .apply = true})->blocked.size(), 1u);
  EXPECT_EQ(sim.steps().size(), 2u);
  // When no step would be forgotten, none is verified.
  FF_ASSERT_OK(sim.forget({.keep_last = 2, .apply = true}));
}

TEST(ForgetTest, ADamagedRunDoesNotBlockOthers) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3}, "a");
  save_steps(sim, {11, 12});
  break_step(sim, 11);
  break_step(sim, 12);
  const auto report = sim.forget({.keep_last = 1, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->blocked.size(), 1u);
  EXPECT_EQ(forgotten(*report), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(sim.steps("a"), (std::vector<uint64_t>{3}));
  EXPECT_EQ(sim.steps().size(), 2u);
}

TEST(ForgetTest, AWholeRun) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3}, "a");
  save_steps(sim, {11, 12});
  verify_step(sim, 12);
  break_step(sim, 11);
  FF_ASSERT_OK(sim.save({{"r0", noise(5, 100)}}, 13, {.world = 2, .attempt = "x"}));
  const auto dry = sim.forget({.runs = {"default"}, .whole_runs = true});
  FF_ASSERT_OK(dry);
  EXPECT_EQ(forgotten(*dry), (std::vector<uint64_t>{11, 12, 13}));
  EXPECT_EQ(sim.steps().size(), 2u);
  FF_ASSERT_OK(sim.forget({.runs = {"default"}, .whole_runs = true, .apply = true}));
  EXPECT_EQ(list_runs(sim.disk, sim.open()).value(), std::vector<std::string>{"a"});
  EXPECT_EQ(sim.steps("a").size(), 3u);
  FF_ASSERT_OK(sim.prune({.grace_ns = 0}));
  EXPECT_EQ(sim.chunks(), 4u);
  EXPECT_TRUE(sim.sound());
  for (const ForgetOptions& wrong :
       {ForgetOptions{.whole_runs = true},
        ForgetOptions{.keep_last = 1, .runs = {"a"}, .whole_runs = true},
        ForgetOptions{.runs = {"a"}, .steps = {"a@1"}, .whole_runs = true}}) {
    EXPECT_EQ(sim.forget(wrong).error().code, Errc::usage);
  }
  EXPECT_EQ(sim.forget({.runs = {"b"}, .whole_runs = true}).error().code, Errc::not_found);
}

TEST(ForgetTest, StepsByName) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3, 4});
  verify_step(sim, 3);
  const auto refused = sim.forget({.steps = {"default@1", "default@3"}, .apply = true});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("default@3"), std::string::npos);
  EXPECT_EQ(sim.steps().size(), 4u);
  const auto report = sim.forget({.steps = {"@4", "default@1"}, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(forgotten(*report), (std::vector<uint64_t>{1, 4}));
  EXPECT_EQ(kept(*report), "2: not named; 3: not named, newest verified");
  EXPECT_EQ(read_latest(sim.disk, sim.open(), "default")->step, 3u);
  // With a rule, both the steps that it drops and the named steps are forgotten.
  FF_ASSERT_OK(sim.save({{"own", noise(9, 100)}}, 9));
  FF_ASSERT_OK(sim.forget({.keep_last = 5, .steps = {"default@9"}, .apply = true}));
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{2, 3}));
  // The only verified step is refused too.
  SimStore fresh(2);
  save_steps(fresh, {1});
  EXPECT_EQ(fresh.forget({.steps = {"@1"}, .apply = true}).error().code, Errc::refused);
}

TEST(ForgetTest, ADamagedIndexStaysUntilItIsNamed) {
  SimStore sim(1);
  save_steps(sim, {1, 2, 3});
  verify_step(sim, 3);
  FF_ASSERT_OK(sim.disk.flip_bit(sim.open().index_path({"default", 1}), 100));
  const auto report = sim.forget({.keep_last = 1, .apply = true});
  FF_ASSERT_OK(report);
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(sim.prune({.grace_ns = 0}).error().code, Errc::corrupt);
  FF_ASSERT_OK(sim.forget({.steps = {"@1"}, .apply = true}));
  EXPECT_EQ(sim.steps(), (std::vector<uint64_t>{3}));
  FF_ASSERT_OK(sim.prune({.grace_ns = 0}));
  EXPECT_TRUE(sim.sound());
}

TEST(ForgetTest, WrongUse) {
  SimStore sim(1);
  save_steps(sim, {1, 2});
  EXPECT_EQ(sim.forget({}).error().code, Errc::usage);
  EXPECT_EQ(sim.forget({.runs = {"default"}}).error().code, Errc::usage);
  EXPECT_EQ(sim.forget({.keep_every = 0}).error().code, Errc::usage);
  EXPECT_EQ(sim.forget({.steps = {"default"}}).error().code, Errc::usage);
  EXPECT_EQ(sim.forget({.steps = {"default@7"}}).error().code, Errc::not_found);
  EXPECT_EQ(sim.forget({.keep_last = 1, .runs = {"other"}}).error().code, Errc::not_found);
  {
    const auto lock = lock_store(sim.disk, sim.open(), "forget");
    FF_ASSERT_OK(lock);
    EXPECT_EQ(sim.forget({.keep_last = 1, .apply = true}).error().code, Errc::refused);
  }
  FF_ASSERT_OK(sim.verify_all());
  sim.disk.set_read_only(true);
  FF_ASSERT_OK(sim.forget({.keep_last = 1}));
  EXPECT_EQ(sim.forget({.keep_last = 1, .apply = true}).error().code, Errc::refused);
}

class ForgetCrashTest : public testing::TestWithParam<bool> {};

// Once with the step that `latest` names among those that go, once with nothing verified before.
TEST_P(ForgetCrashTest, LeavesWholeCheckpointsAtEveryPoint) {
  const bool power_loss = GetParam();
  std::set<size_t> seen;
  for (uint64_t seed = 0; seed < 6; seed++) {
    const bool latest_goes = seed % 2 == 0;
    const uint64_t stays = latest_goes ? 3 : 4;
    bool finished = false;
    for (uint64_t operation = seed % kPointStep; !finished; operation += kPointStep) {
      SCOPED_TRACE(fmt::format("seed {} operation {}", seed, operation));
      ASSERT_LT(operation, 1000u);
      SimStore sim(seed);
      save_steps(sim, {1, 2, 3, 4});
      if (latest_goes) verify_step(sim, stays);
      sim.disk.crash_at(sim.disk.mutations() + operation);
      finished = sim.forget({.keep_last = 0, .apply = true}).ok();
      power_loss ? sim.disk.power_loss() : sim.disk.kill();
      sim.disk.crash_at(UINT64_MAX);
      ASSERT_TRUE(sim.sound());
      const auto steps = sim.steps();
      seen.insert(steps.size());
      ASSERT_TRUE(std::find(steps.begin(), steps.end(), stays) != steps.end());
      FF_ASSERT_OK(latest_step(sim.disk, sim.open(), "default"));
      if (finished) {
        ASSERT_EQ(steps, (std::vector<uint64_t>{stays}));
      }
      // And the same forget can be completed.
      FF_ASSERT_OK(sim.forget({.keep_last = 0, .apply = true}));
      sim.clock.advance(kLeaseTimeoutNs);
      FF_ASSERT_OK(sim.prune({.grace_ns = 0}));
      ASSERT_EQ(sim.steps().size(), 1u);
      ASSERT_EQ(sim.chunks(), 2u);
      ASSERT_EQ(sim.entries("trash"), 0u);
      ASSERT_TRUE(sim.sound());
    }
  }
  EXPECT_GE(seen.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(All, ForgetCrashTest, testing::Values(false, true),
                         [](const auto& at) { return at.param ? "PowerLoss" : "Kill"; });

// A save of the next step at any point of a forget, and the other way round.
TEST(ForgetTest, ConcurrentWithASave) {
  for (const bool save_inside : {true, false}) {
    bool reached = true;
    for (uint64_t at = 0; reached; at += kPointStep) {
      SCOPED_TRACE(fmt::format("{} at {}", save_inside ? "save" : "forget", at));
      SimStore sim(at);
      save_steps(sim, {1, 2, 3});
      const Content next{{"own", noise(4, 4000)}, {"same", noise(0, 4000)}};
      const ForgetOptions rules{.keep_last = 1, .apply = true};
      HookDisk disk(sim.disk);
      reached = false;
      disk.hook = [&](uint64_t number) {
        if (number != at) return;
        reached = true;
        if (save_inside) {
          EXPECT_TRUE(io::ok(sim.save(next, 4)));
        } else {
          EXPECT_TRUE(io::ok(sim.forget(rules)));
        }
      };
      if (save_inside) {
        FF_ASSERT_OK(sim.forget_on(disk, rules));
      } else {
        FF_ASSERT_OK(sim.save_on(disk, next, 4));
      }
      ASSERT_EQ(sim.steps().back(), reached || !save_inside ? 4u : 3u);
      ASSERT_TRUE(sim.sound());
      FF_ASSERT_OK(latest_step(sim.disk, sim.open(), "default"));
    }
  }
}

}  // namespace
}  // namespace ff::checkpoint
