// Every scenario over many seeds; a failure prints the seed. FF_STORY_SEEDS changes how many.
#include "lab/scenario/scenarios.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "platform/base/log.h"

namespace ff::scenario {
namespace {

// The simulated daemons warn about the injected faults; those warnings are expected.
const bool kQuiet = (log_setup({.level = LogLevel::error}), true);

uint64_t seed_count(uint64_t usual) {
  const char* const asked = std::getenv("FF_STORY_SEEDS");
  return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
}

TEST(ScenarioTest, NamesAreFound) {
  for (const Scenario& scenario : scenarios()) EXPECT_EQ(find_scenario(scenario.name), &scenario);
  EXPECT_EQ(find_scenario("none"), nullptr);
}

TEST(ScenarioTest, EqualSeedsGiveEqualTraces) {
  for (const Scenario& scenario : scenarios()) {
    for (const uint64_t seed : {1u, 2u, 3u}) {
      const auto first = scenario.run(seed);
      const auto again = scenario.run(seed);
      ASSERT_TRUE(first.ok() && again.ok()) << scenario.name << ": seed " << seed;
      EXPECT_EQ(first->trace, again->trace) << scenario.name << ": seed " << seed;
      EXPECT_EQ(first->virtual_ns, again->virtual_ns);
      EXPECT_GT(first->steps, 0u);
      EXPECT_GT(first->faults, 0u);
    }
  }
}

// Seeds that found a defect once; their event orders are rare.
TEST(ScenarioTest, SeedsThatFailedBefore) {
  struct Seed {
    std::string_view scenario;
    uint64_t number;
  };
  const Seed seeds[] = {
      // A metadata server that could not read the routing told programs of no chain table.
      {"names", 610},
      // The chain changed between a target's decision to ask the next one and the call to it.
      {"files", 653},
  };
  for (const Seed& seed : seeds) {
    const auto outcome = find_scenario(seed.scenario)->run(seed.number);
    EXPECT_TRUE(outcome.ok()) << seed.scenario << ' ' << seed.number << ": "
                              << outcome.error().message;
  }
}

// The trace of one seed, as every build must give it.
TEST(ScenarioTest, TracesAreEqualAcrossBuilds) {
  const auto outcome = find_scenario("calls")->run(7);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(fmt::format("{:016x}", outcome->trace), "3c51f0f51568a04f");
}

// The seeds of one share, so that shares run side by side.
class ScenarioSeeds : public testing::TestWithParam<uint64_t> {};

constexpr uint64_t kShares = 8;

TEST_P(ScenarioSeeds, HoldEveryInvariant) {
  const uint64_t seeds = seed_count(200);
  for (const Scenario& scenario : scenarios()) {
    for (uint64_t seed = 1 + GetParam(); seed <= seeds; seed += kShares) {
      const auto outcome = scenario.run(seed);
      ASSERT_TRUE(outcome.ok()) << "ff sim --scenario " << scenario.name << " --seed " << seed
                                << ": " << outcome.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Share, ScenarioSeeds, testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace ff::scenario
