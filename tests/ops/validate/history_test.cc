// The history of a node: stored runs, baselines, and drift.
#include "ops/validate/history.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "platform/io/temp_dir.h"

namespace ff::validate {
namespace {

constexpr int64_t kStart = 1'795'435'200 * kSecond;

class HistoryTest : public testing::Test {
 protected:
  Finding finding(double value, Verdict verdict = Verdict::pass, const std::string& load = "") {
    return {.name = "a.b",
            .part = "p",
            .verdict = verdict,
            .found = "x",
            .value = value,
            .unit = "B/s",
            .better = Better::higher,
            .expected = "e",
            .source = "s",
            .load = load,
            .seconds = 0.25,
            .hint = "h"};
  }
  void add(const Finding& one, const std::string& boot = "b1") {
    at_ += kSecond;
    const auto done = history_.add({.wall_ns = at_,
                                    .boot = boot,
                                    .level = RunLevel::weekly,
                                    .verdict = one.verdict,
                                    .seconds = 9},
                                   {one});
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  std::vector<double> baseline() { return history_.baseline("a.b", "p").value(); }

  io::TempDir dir_;
  SystemClock clock_;
  History history_ = History::open(dir_ / "validate.db", clock_).value();
  int64_t at_ = kStart;
};

TEST_F(HistoryTest, ARunIsReadBackAsItWas) {
  add(finding(2.5, Verdict::degraded, "miner (1) used 2 cores"));
  History again = History::open(dir_ / "validate.db", clock_).value();
  const auto runs = again.runs(5).value();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].wall_ns, kStart + kSecond);
  EXPECT_EQ(runs[0].boot, "b1");
  EXPECT_EQ(runs[0].level, RunLevel::weekly);
  EXPECT_EQ(runs[0].verdict, Verdict::degraded);
  EXPECT_EQ(runs[0].seconds, 9);
  const auto found = again.findings(runs[0].id).value();
  ASSERT_EQ(found.size(), 1u);
  const Finding one = found[0], was = finding(2.5, Verdict::degraded, "miner (1) used 2 cores");
  EXPECT_EQ(std::tie(one.name, one.part, one.verdict, one.found, one.value, one.unit),
            std::tie(was.name, was.part, was.verdict, was.found, was.value, was.unit));
  EXPECT_EQ(std::tie(one.expected, one.source, one.load, one.seconds, one.hint),
            std::tie(was.expected, was.source, was.load, was.seconds, was.hint));
}

TEST_F(HistoryTest, TheBaselineIsWhatPassedUndisturbedSinceAdoption) {
  add(finding(1));
  ASSERT_TRUE(history_.adopt({{"cores", "2"}}, at_ + 1).ok());
  add(finding(2));
  add(finding(3, Verdict::degraded));
  add(finding(4, Verdict::fail));
  add(finding(5, Verdict::pass, "miner (1) used 2 cores"));
  add(finding(6));
  EXPECT_EQ(baseline(), (std::vector<double>{6, 2}));
  for (int i = 0; i < 30; i++) add(finding(100 + i));
  EXPECT_EQ(baseline().size(), Drift::kRuns);
  EXPECT_EQ(baseline().front(), 129);
}

TEST_F(HistoryTest, CountersAreKnownByBoot) {
  add(finding(7), "b1");
  add(finding(9), "b1");
  EXPECT_EQ(history_.last_values("b1").value().at({"a.b", "p"}), 9);
  EXPECT_TRUE(history_.last_values("b2").value().empty());
}

TEST_F(HistoryTest, WhenTheMachinesOwnLogWasLastRead) {
  const auto add_log = [&](Verdict verdict) {
    at_ += kSecond;
    const Finding one{.name = "log.kernel", .verdict = verdict};
    ASSERT_TRUE(history_.add({.wall_ns = at_}, {one}).ok());
  };
  add(finding(1));
  EXPECT_EQ(history_.last_log().value(), 0);
  add_log(Verdict::pass);
  const int64_t known = at_;
  EXPECT_EQ(history_.last_log().value(), known);
  add_log(Verdict::could_not_run);
  EXPECT_EQ(history_.last_log().value(), known);
  // As earlier versions stored a run on a saved log.
  add_log(Verdict::fail);
  sqlite3* other = nullptr;
  ASSERT_EQ(::sqlite3_open((dir_ / "validate.db").c_str(), &other), SQLITE_OK);
  const char* const change =
      "UPDATE run SET log_file = '/tmp/kern.log' WHERE verdict = 'pass' AND "
      "id = (SELECT max(id) FROM run)";
  ASSERT_EQ(::sqlite3_exec(other, change, nullptr, nullptr, nullptr), SQLITE_OK);
  ::sqlite3_close(other);
  EXPECT_EQ(history_.last_log().value(), known);
  EXPECT_EQ(history_.runs(10).value().size(), 3u);
}

TEST_F(HistoryTest, SeriesAreOfTheLastRunsTheOldestFirst) {
  for (int i = 1; i <= 5; i++) add(finding(i));
  const auto series = history_.series(3).value();
  ASSERT_EQ(series.size(), 1u);
  ASSERT_EQ(series[0].values.size(), 3u);
  EXPECT_EQ(series[0].values.front().value, 3);
  EXPECT_EQ(series[0].values.back().value, 5);
}

// Earlier versions recorded that the clock was synchronised: it is no part that can be gone.
TEST_F(HistoryTest, ARecordedClockIsNoPart) {
  ASSERT_TRUE(history_.adopt({{"clock", "kept"}, {"cores", "2"}}, at_).ok());
  EXPECT_EQ(*history_.inventory().value(), (Inventory{{"cores", "2"}}));
}

TEST_F(HistoryTest, AnInventoryReplacesTheOneBefore) {
  EXPECT_FALSE(history_.inventory().value().has_value());
  ASSERT_TRUE(history_.adopt({{"cores", "2"}, {"gpu a", "x"}}, 1).ok());
  ASSERT_TRUE(history_.adopt({{"cores", "4"}}, 2).ok());
  EXPECT_EQ(history_.inventory().value(), (Inventory{{"cores", "4"}}));
  ASSERT_TRUE(history_.adopt({}, 3).ok());
  EXPECT_EQ(history_.inventory().value(), Inventory()) << "adopted, and has nothing";
}

TEST(Drift, NeedsFiveRunsAndLooksAtTheBadSide) {
  EXPECT_FALSE(drift_of(1, Better::higher, {100, 100, 100, 100}).bad);
  const std::vector<double> steady = {100, 100, 100, 100, 100};
  EXPECT_TRUE(drift_of(92.9, Better::higher, steady).bad);
  EXPECT_FALSE(drift_of(93.1, Better::higher, steady).bad) << "7 %";
  EXPECT_FALSE(drift_of(200, Better::higher, steady).bad);
  EXPECT_TRUE(drift_of(107.1, Better::lower, steady).bad);
  EXPECT_FALSE(drift_of(1, Better::lower, steady).bad);
  EXPECT_FALSE(drift_of(1, Better::neither, steady).bad);
}

TEST(Drift, NoiseWidensIt) {
  // Median 100, the median of the deviations 5: 20 are allowed.
  const std::vector<double> noisy = {95, 105, 100, 90, 110, 95, 105};
  EXPECT_FALSE(drift_of(81, Better::higher, noisy).bad);
  EXPECT_TRUE(drift_of(79, Better::higher, noisy).bad);
}

TEST(Drift, WhatTheNodeHasShownBeforeIsNone) {
  const std::vector<double> two_levels = {100, 100, 60, 100, 100, 100, 100};
  EXPECT_FALSE(drift_of(58, Better::higher, two_levels).bad);
  EXPECT_TRUE(drift_of(55, Better::higher, two_levels).bad);
}

TEST(Drift, IsToldWithWhatWasExpected) {
  Finding finding{.name = "a.b", .verdict = Verdict::pass, .found = "50 B/s", .value = 50};
  finding.unit = "B/s";
  finding.better = Better::higher;
  compare_with_baseline(finding, {100, 100, 100, 100, 100, 100});
  EXPECT_EQ(finding.verdict, Verdict::degraded);
  EXPECT_NE(finding.found.find("-50 % of its median"), std::string::npos) << finding.found;
  EXPECT_NE(finding.expected.find("at least"), std::string::npos);
  EXPECT_EQ(finding.source, "the last 6 runs of this node");
  EXPECT_NE(finding.hint, "");
  Finding failed{.name = "a.b", .verdict = Verdict::fail, .value = 50, .better = Better::higher};
  compare_with_baseline(failed, {100, 100, 100, 100, 100});
  EXPECT_EQ(failed.verdict, Verdict::fail) << "no better than it was";
}

}  // namespace
}  // namespace ff::validate
