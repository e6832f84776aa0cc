// The environment of a rank: what it was submitted with, and what the node adds and removes.
#include "ops/scheduler/rank_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace ff::scheduler {
namespace {

std::map<std::string, std::string> environment_of(const std::vector<std::string>& submitted,
                                                  std::optional<LoginAccount> login,
                                                  const std::string& zone = "") {
  RankInfo place{.scheduler = "s", .task = 7, .attempt = 2, .nodes = 2, .node_rank = 1};
  place.login = std::move(login);
  place.zone = zone;
  std::map<std::string, std::string> all;
  for (const std::string& pair : rank_environment(submitted, place)) {
    const size_t equals = pair.find('=');
    EXPECT_TRUE(all.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second) << pair;
  }
  return all;
}

const LoginAccount kAccount{.name = "ada", .home = "/home/ada", .shell = "/bin/zsh"};

TEST(RankEnvironment, TheNodeKnowsItsUsers) {
  const auto env = environment_of({}, kAccount);
  EXPECT_EQ(env.at("HOME"), "/home/ada");
  EXPECT_EQ(env.at("USER"), "ada");
  EXPECT_EQ(env.at("LOGNAME"), "ada");
  EXPECT_EQ(env.at("SHELL"), "/bin/zsh");
  EXPECT_EQ(env.at("PATH"), "/usr/local/bin:/usr/bin:/bin");
  EXPECT_EQ(env.at("FF_TASK"), "7");
  EXPECT_EQ(env.at("RANK"), "1");
}

// Two clusters may give their tasks the same numbers, on one machine.
TEST(RankEnvironment, NoTwoRanksOfAMachineHaveOneMarker) {
  const RankInfo place{.scheduler = "s", .task = 7};
  RankInfo other = place;
  other.scheduler = "t";
  EXPECT_NE(rank_marker(place), rank_marker(other));
  other = place;
  other.local_rank = 1;
  EXPECT_NE(rank_marker(place), rank_marker(other));
}

TEST(RankEnvironment, WhatTheTaskHasIsKept) {
  const auto env = environment_of({"HOME=/scratch", "PATH=/venv/bin", "USER=", "X=1"}, kAccount);
  EXPECT_EQ(env.at("HOME"), "/scratch");
  EXPECT_EQ(env.at("PATH"), "/venv/bin");
  EXPECT_EQ(env.at("USER"), "");
  EXPECT_EQ(env.at("LOGNAME"), "ada");
  EXPECT_EQ(env.at("X"), "1");
}

TEST(RankEnvironment, AnUnknownUserHasAPath) {
  const auto env = environment_of({}, std::nullopt);
  EXPECT_EQ(env.at("PATH"), "/usr/local/bin:/usr/bin:/bin");
  EXPECT_FALSE(env.contains("HOME"));
  EXPECT_FALSE(env.contains("USER"));
}

// Collective operations and `ff schedule` speak of the same zones.
TEST(RankEnvironment, TheNodeSetsItsZone) {
  EXPECT_EQ(environment_of({"FF_ZONE=elsewhere"}, kAccount, "east").at("FF_ZONE"), "east");
  EXPECT_FALSE(environment_of({}, kAccount).contains("FF_ZONE"));
}

TEST(RankEnvironment, SecretsOfTheSubmitterAndWrongPlacesAreLeftOut) {
  const auto env = environment_of(
      {"FF_KEY=/k", "FF_TOKEN_FILE=/t", "FF_TASK=99", "RANK=5", "WORLD_SIZE=9"}, kAccount);
  EXPECT_FALSE(env.contains("FF_KEY"));
  EXPECT_FALSE(env.contains("FF_TOKEN_FILE"));
  EXPECT_EQ(env.at("FF_TASK"), "7");
  EXPECT_EQ(env.at("RANK"), "1");
  EXPECT_EQ(env.at("WORLD_SIZE"), "2");
}

}  // namespace
}  // namespace ff::scheduler
