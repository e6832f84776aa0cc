// A whole run: held against its history, measured again where it is worse, written down.
#include "ops/validate/validate.h"

#include <gtest/gtest.h>

#include <sqlite3.h>

#include <algorithm>

#include "cmd/validate/host_ranks.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::validate {
namespace {

class ValidateRunTest : public testing::Test {
 protected:
  Report run(std::vector<std::string> only) {
    const Request request{.only = std::move(only),
                          .force = true,
                          .scratch = dir_.path(),
                          .sum_ranks = cmd::host_sum_ranks()};
    auto report = validate(tree_, clock_, stop_, &history_, request, [](const Outcome&) {});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? *report : Report();
  }
  // A run of this boot in which a part had this value.
  void remember(const std::string& name, const std::string& part, double value,
                const std::string& load = "") {
    const Finding finding{.name = name,
                          .part = part,
                          .verdict = Verdict::pass,
                          .value = value,
                          .unit = "1/s",
                          .better = Better::higher,
                          .load = load};
    const auto added = history_.add({.wall_ns = clock_.wall_ns(), .boot = boot_}, {finding});
    ASSERT_TRUE(added.ok()) << added.error().message;
  }
  static Finding of(const Report& report, const std::string& name, const std::string& part) {
    for (const Finding& finding : report.findings()) {
      if (finding.name == name && finding.part == part) return finding;
    }
    ADD_FAILURE() << name << " " << part << " was not reported";
    return {};
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  Stop stop_{clock_};
  Tree tree_{disk_, "/"};
  std::string boot_ = tree_.maybe_text("/proc/sys/kernel/random/boot_id").value_or("");
  History history_ = History::open(dir_ / "validate.db", clock_).value();
};

TEST_F(ValidateRunTest, WhatIsFarBelowItsPastIsDegradedAlsoWhenMeasuredAgain) {
  for (int i = 0; i < 6; i++) remember("collective.reduce", "", 1e15);
  const Report report = run({"collective"});
  const Finding finding = of(report, "collective.reduce", "");
  EXPECT_EQ(finding.verdict, Verdict::degraded);
  EXPECT_EQ(finding.source, "the last 6 runs of this node");
  EXPECT_NE(finding.found.find("-100 % of its median"), std::string::npos) << finding.found;
  EXPECT_EQ(report.verdict, Verdict::degraded);
  // What was degraded does not become the measure of what follows.
  EXPECT_EQ(history_.baseline("collective.reduce", "").value().size(), 6u);
}

TEST_F(ValidateRunTest, FasterThanEverIsNoFault) {
  for (int i = 0; i < 6; i++) remember("collective.reduce", "", 1);
  EXPECT_EQ(of(run({"collective"}), "collective.reduce", "").verdict, Verdict::pass);
}

TEST_F(ValidateRunTest, WithFewRunsOrDisturbedOnesThereIsNoBaseline) {
  for (int i = 0; i < 4; i++) remember("collective.reduce", "", 1e15);
  for (int i = 0; i < 9; i++) remember("collective.reduce", "", 1e15, "miner (42) used 1.5 cores");
  const Finding finding = of(run({"collective"}), "collective.reduce", "");
  EXPECT_EQ(finding.verdict, Verdict::pass);
  EXPECT_EQ(finding.source, "no baseline yet: 4 runs of 5");
}

TEST_F(ValidateRunTest, ARunIsWrittenDownWithItsVerdict) {
  const Report report = run({"host.cpu", "host.memory"});
  const auto runs = history_.runs(10).value();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].verdict, report.verdict);
  EXPECT_EQ(runs[0].boot, boot_);
  EXPECT_EQ(history_.findings(runs[0].id).value().size(), report.findings().size());
  EXPECT_FALSE(report.not_recorded.has_value());
}

TEST_F(ValidateRunTest, AHistoryThatCannotBeWrittenHidesNoResult) {
  sqlite3* other = nullptr;
  ASSERT_EQ(::sqlite3_open((dir_ / "validate.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(::sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const Report report = run({"host.cpu"});
  EXPECT_EQ(report.outcomes.size(), 1u);
  ::sqlite3_close(other);
  ASSERT_TRUE(report.not_recorded.has_value());
  EXPECT_NE(report.not_recorded->message, "");
}

TEST_F(ValidateRunTest, FaultsThatWerePutInAreNotRemembered) {
  const Request request{.only = {"collective"},
                        .force = true,
                        .fault = Fault::sum_bit,
                        .sum_ranks = cmd::host_sum_ranks()};
  const auto report = validate(tree_, clock_, stop_, &history_, request, [](const Outcome&) {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->verdict, Verdict::fail);
  EXPECT_TRUE(history_.runs(10).value().empty());
}

TEST_F(ValidateRunTest, NamesThatAreNoneAreRefused) {
  for (const Request& request : {Request{.only = {"cpus"}}, Request{.required = {"cpu.kernels"}}}) {
    const auto report = validate(tree_, clock_, stop_, &history_, request, [](const Outcome&) {});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, Errc::usage);
    EXPECT_NE(report.error().hint, "");
  }
}

}  // namespace
}  // namespace ff::validate
