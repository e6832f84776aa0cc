// ff schedule simulate as it is typed: mistakes, seeds, traces.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

test::ProcessResult simulate(Words words) {
  words.insert(words.begin(), {"schedule", "simulate"});
  return test::run_ff(words);
}

TEST(ScheduleSimulate, MistakesAreNamed) {
  const std::pair<Words, std::string> cases[] = {
      {{"--nodes", "0"}, "--nodes 0: expected 1 to 100000"},
      {{"--nodes", "4", "--zones", "5"}, "--zones 5: expected 1 to 4"},
      {{"--tasks", "0"}, "--tasks 0"},
      {{"--answering", "101"}, "--answering 101"},
      {{"--pass-every", "0s"}, "--pass-every"},
      {{"--trace", "x", "--tasks", "5"}, "--trace and --tasks"},
  };
  for (const auto& [words, said] : cases) {
    const auto ran = simulate(words);
    EXPECT_EQ(ran.exit, 2) << said;
    EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
  EXPECT_EQ(simulate({"--trace", "/no/such/trace"}).exit, 1);
}

TEST(ScheduleSimulate, TheSameSeedGivesTheSameCluster) {
  const Words words = {"--nodes", "64", "--tasks", "200", "--seed", "5", "--json"};
  Words answers;
  for (int i = 0; i < 2; i++) {
    const auto ran = simulate(words);
    ASSERT_EQ(ran.exit, 0) << ran.err;
    auto data = nlohmann::json::parse(ran.out)["data"];
    EXPECT_EQ(data["finished"], 200);
    EXPECT_GT(data["utilisation"], 0.9);
    for (const char* measured : {"pass_ms_p50", "pass_ms_p99", "pass_ms_max"}) {
      EXPECT_TRUE(data.contains(measured));
      data.erase(measured);
    }
    answers.push_back(data.dump());
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(ScheduleSimulate, TracesOfBothFormats) {
  const std::string file = testing::TempDir() + "ff_trace_" + std::to_string(::getpid());
  std::ofstream(file) << "; a comment\n1 0 0 100 16 0 0 16 200 0 1 1 1 1 1 1 0 0\n"
                         "2 0 0 100 999 0 0 999 200 0 1 1 1 1 1 1 0 0\n";
  auto ran = simulate({"--nodes", "4", "--processors", "8", "--trace", file, "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["data"]["finished"], 1);
  EXPECT_EQ(json["data"]["never"], 1);
  EXPECT_EQ(json["warnings"].size(), 1u);
  EXPECT_EQ(json["data"]["without_limit"], 0);
  std::ofstream(file)
      << "{\"nodes\": 2, \"run_s\": 10}\n{\"nodes\": 2, \"run_s\": 9, \"limit_s\": 9}\n";
  ran = simulate({"--trace", file});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_NE(ran.err.find("1 of 2 tasks request no time"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("limit_s"), std::string::npos) << ran.err;
  std::ofstream(file) << "{\"nodes\": 2, \"run_s\": 10}\n{\"nodes\": 2, \"walltime\": 10}\n";
  ran = simulate({"--trace", file});
  EXPECT_EQ(ran.exit, 2);
  EXPECT_NE(ran.err.find(file + ": line 2"), std::string::npos) << ran.err;
  std::filesystem::remove(file);
}

// Ten thousand nodes in bounded time: the work of a pass must not depend on the number of tasks
// that have no chance.
TEST(ScheduleSimulate, TenThousandNodes) {
  const auto ran =
      simulate({"--nodes", "10000", "--tasks", "15000", "--pass-every", "10m", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err;
  const auto data = nlohmann::json::parse(ran.out)["data"];
  EXPECT_EQ(data["finished"], 15'000);
  EXPECT_GE(data["utilisation"], 0.97);
}

}  // namespace
}  // namespace ff::cmd
