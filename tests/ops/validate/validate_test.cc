// A whole run: compared with its history, repeated where it is worse, and stored.
#include "ops/validate/validate.h"

#include <gtest/gtest.h>

#include <sqlite3.h>

#include <algorithm>

#include "cmd/validate/host_allreduce.h"
#include "ops/validate/machine.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::validate {
namespace {

class ValidateRunTest : public testing::Test {
 protected:
  ValidationReport run(std::vector<std::string> only) {
    const ValidationRequest request{.only = std::move(only),
                                    .force = true,
                                    .scratch = dir_.path(),
                                    .allreduce_ranks = cmd::host_allreduce_ranks()};
    auto report = validate(tree_, clock_, stop_, &history_, request, [](const CheckResult&) {});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? *report : ValidationReport();
  }
  // A run since this boot with this value of a part.
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
  static Finding of(const ValidationReport& report, const std::string& name,
                    const std::string& part) {
    for (const Finding& finding : report.findings()) {
      if (finding.name == name && finding.part == part) return finding;
    }
    ADD_FAILURE() << name << " " << part << " was not reported";
    return {};
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  StopToken stop_{clock_};
  SystemTree tree_{disk_, "/"};
  std::string boot_ = tree_.maybe_text("/proc/sys/kernel/random/boot_id").value_or("");
  History history_ = History::open(dir_ / "validate.db", clock_).value();
};

TEST_F(ValidateRunTest, WhatIsFarBelowItsPastIsDegradedAlsoWhenMeasuredAgain) {
  for (int i = 0; i < 6; i++) remember("collective.reduce", "", 1e15);
  const ValidationReport report = run({"collective"});
  const Finding finding = of(report, "collective.reduce", "");
  EXPECT_EQ(finding.verdict, Verdict::degraded);
  EXPECT_EQ(finding.source, "the last 6 runs of this node");
  EXPECT_NE(finding.found.find("-100 % of its median"), std::string::npos) << finding.found;
  EXPECT_EQ(report.verdict, Verdict::degraded);
  // Degraded values do not become part of the baseline.
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
  const ValidationReport report = run({"host.cpu", "host.memory"});
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
  const ValidationReport report = run({"host.cpu"});
  EXPECT_EQ(report.results.size(), 1u);
  ::sqlite3_close(other);
  ASSERT_TRUE(report.not_recorded.has_value());
  EXPECT_NE(report.not_recorded->message, "");
}

TEST_F(ValidateRunTest, FaultsThatWerePutInAreNotRemembered) {
  const ValidationRequest request{.only = {"collective"},
                                  .force = true,
                                  .fault = InjectedFault::sum_bit,
                                  .allreduce_ranks = cmd::host_allreduce_ranks()};
  const auto report = validate(tree_, clock_, stop_, &history_, request, [](const CheckResult&) {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->verdict, Verdict::fail);
  EXPECT_TRUE(history_.runs(10).value().empty());
}

// A GPU that was dead when the node was adopted is not in its inventory.
TEST_F(ValidateRunTest, ARequiredPartIsNotExcusedByAdoption) {
  const SystemTree empty(disk_, dir_.path());
  ASSERT_TRUE(history_.adopt({{"cores", "2"}}, clock_.wall_ns()).ok());
  const auto verdict = [&](std::vector<std::string> only, std::vector<std::string> required) {
    const ValidationRequest request{.only = std::move(only), .required = std::move(required)};
    const auto report =
        validate(empty, clock_, stop_, &history_, request, [](const CheckResult&) {});
    EXPECT_TRUE(report.ok());
    return report ? *report : ValidationReport();
  };
  EXPECT_EQ(verdict({"gpu"}, {}).verdict, Verdict::skipped) << "nothing was checked: no pass";
  for (const char* const required : {"gpu", "gpu.health"}) {
    const ValidationReport report = verdict({"gpu"}, {required});
    EXPECT_EQ(report.verdict, Verdict::fail) << required;
    const Finding finding = of(report, "gpu.health", "");
    EXPECT_EQ(finding.verdict, Verdict::fail);
    EXPECT_EQ(finding.source, std::string("--require ") + required);
    EXPECT_NE(finding.hint, "");
  }
  EXPECT_EQ(verdict({"gpu"}, {"host"}).verdict, Verdict::fail) << "it was not run";
}

// A node with InfiniBand and without bonds has a network.
TEST_F(ValidateRunTest, OfARequiredGroupOnePartIsEnough) {
  Machine machine("pcie8");
  machine.patch("- /proc/net/bonding\n").adopt();
  ASSERT_TRUE(history_.adopt(*machine.inventory, clock_.wall_ns()).ok());
  const auto verdict = [&](const char* required) {
    const ValidationRequest request{.only = {"network"}, .required = {required}};
    const auto report =
        validate(machine.tree, clock_, stop_, &history_, request, [](const CheckResult&) {});
    EXPECT_TRUE(report.ok());
    return report ? report->verdict : Verdict::could_not_run;
  };
  EXPECT_EQ(verdict("network"), Verdict::pass);
  EXPECT_EQ(verdict("network.bond"), Verdict::fail);
}

TEST_F(ValidateRunTest, NamesThatAreNoneAreRefused) {
  for (const ValidationRequest& request :
       {ValidationRequest{.only = {"cpus"}}, ValidationRequest{.required = {"cpus.kernels"}}}) {
    const auto report =
        validate(tree_, clock_, stop_, &history_, request, [](const CheckResult&) {});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, Errc::usage);
    EXPECT_NE(report.error().hint, "");
  }
}

}  // namespace
}  // namespace ff::validate
