// Validation runs on a node: parsing of their output, and stopping a run that is no longer wanted.
#include "ops/scheduler/node_checks.h"

#include <gtest/gtest.h>

#include <csignal>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::scheduler {
namespace {

using validate::Verdict;

std::vector<std::string> words(const auto& names) { return {names.begin(), names.end()}; }
using Words = std::vector<std::string>;

TEST(NodeChecks, TheSchedulerIsToldOfTheWorst) {
  const CheckVerdicts found = {{"a.bad", Verdict::fail},
                               {"a.fine", Verdict::pass},
                               {"a.gone", Verdict::skipped},
                               {"a.nobody-knows", Verdict::could_not_run},
                               {"a.slow", Verdict::degraded}};
  const Words checked = {"a.bad", "a.fine", "a.slow"};
  for (const Verdict worst : {Verdict::fail, Verdict::degraded}) {
    const wire::Verdict told = make_verdict(worst, found);
    EXPECT_EQ(told.verdict(), static_cast<uint32_t>(worst));
    EXPECT_EQ(words(told.failed()), (Words{"a.bad", "a.slow"}));
    EXPECT_EQ(words(told.checks()), checked);
  }
  const CheckVerdicts unsure = {{"a.fine", Verdict::pass},
                                {"a.nobody-knows", Verdict::could_not_run}};
  EXPECT_EQ(words(make_verdict(Verdict::could_not_run, unsure).failed()), Words{"a.nobody-knows"});
  EXPECT_EQ(words(make_verdict(Verdict::could_not_run, unsure).checks()), Words{"a.fine"});
  // Degraded counts as a pass if the operator says so.
  EXPECT_TRUE(make_verdict(Verdict::pass, found).failed().empty());
  EXPECT_EQ(make_verdict(Verdict::skipped, {}).verdict(), static_cast<uint32_t>(Verdict::pass));
}

TEST(NodeChecks, WhatARunHasPrintedIsRead) {
  const auto told = parse_validate_output(
      "a warning\n"
      R"({"ff":"1","exit":3,"data":{"verdict":"degraded","checks":[)"
      R"({"name":"log.xid","check":"log.kernel","verdict":"degraded"},)"
      R"({"name":"log.kernel","check":"log.kernel","verdict":"pass"},)"
      R"({"name":"host.cpu","check":"host.cpu","verdict":"pass"}]},"error":null})"
      "\nmore\n");
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(told->verdict(), static_cast<uint32_t>(Verdict::degraded));
  EXPECT_EQ(words(told->failed()), Words{"log.kernel"});
  EXPECT_EQ(words(told->checks()), (Words{"host.cpu", "log.kernel"}));
  for (const auto& [printed, why] : {
           std::pair<const char*, const char*>{"", "it printed no JSON report"},
           {"sh: not found\n", "it printed no JSON report"},
           {R"({"ff":"1","data":{"verdict":"pa)", "it printed no JSON report"},
           {R"({"ff":"1","data":{},"error":{"message":"another runs"}})", "another runs"},
           {R"({"ff":"1","data":{"verdict":"pass","checks":[{"name":"x","verdict":"good"}]}})",
            "unknown verdict"},
       }) {
    const auto none = parse_validate_output(printed);
    ASSERT_FALSE(none.ok()) << printed;
    EXPECT_NE(none.error().message.find(why), std::string::npos) << none.error().message;
  }
}

class NodeChecksTest : public testing::Test {
 protected:
  NodeChecksTest() { log_setup({.level = LogLevel::error}); }
  ~NodeChecksTest() override { run_task(loop_, gate_.close(fail(Errc::interrupted, "the end"))); }
  void begin(const std::string& script) {
    checks_.emplace(loop_, Words{"/bin/sh", "-c", "cd " + dir_.path() + "; " + script},
                    [this] { on_change_++; });
    gate_.spawn(checks_->run());
  }
  template <class Condition>
  bool until(Condition condition) {
    const int64_t end_ns = clock_.steady_ns() + 60 * kSecond;
    while (!condition() && clock_.steady_ns() < end_ns) {
      run_task(loop_, [](Loop& loop) -> Task<void> {
        (void)co_await sleep_for(loop, 10 * kMillisecond);
      }(loop_));
    }
    return condition();
  }
  std::string file(const std::string& name) {
    auto text = io::read_file(disk_, dir_ / name, kKiB);
    return text ? *std::move(text) : "";
  }
  bool is_gone(const std::string& name) {
    const auto pid = parse_u64(file(name).substr(0, file(name).find('\n')));
    return pid && ::kill(static_cast<pid_t>(*pid), 0) != 0;
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  Gate gate_{loop_};
  std::optional<NodeChecks> checks_;
  int on_change_ = 0;
};

TEST_F(NodeChecksTest, ARunIsToldUntilItIsWantedNoLonger) {
  begin(R"(echo '{"ff":"1","data":{"verdict":"pass","checks":[]}}'; echo x >>runs)");
  EXPECT_EQ(checks_->report().run(), 0u);
  checks_->set_wanted_run(7);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 7; }));
  ASSERT_TRUE(until([&] { return !checks_->report().runs(); }));
  EXPECT_EQ(checks_->report().verdict().verdict(), static_cast<uint32_t>(Verdict::pass));
  EXPECT_EQ(on_change_, 2) << "it has begun; it has ended";
  checks_->set_wanted_run(7);
  checks_->set_wanted_run(0);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 0; }));
  checks_->set_wanted_run(8);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 8 && !checks_->report().runs(); }));
  EXPECT_EQ(file("runs"), "x\nx\n");
}

TEST_F(NodeChecksTest, OneThatCannotBeRunIsNoVerdict) {
  begin("exit 7");
  checks_->set_wanted_run(1);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 1 && !checks_->report().runs(); }));
  EXPECT_EQ(checks_->report().verdict().verdict(), static_cast<uint32_t>(Verdict::could_not_run));
  EXPECT_EQ(checks_->report().verdict().text(), "exit 7: it printed no JSON report");
}

TEST_F(NodeChecksTest, WhatNobodyWantsEndsWithAllItsProcesses) {
  // One process exits on SIGTERM, one does not.
  begin(
      "sh -c 'trap \"\" TERM; echo $$ >stubborn; while :; do sleep 0.1; done' & "
      "trap 'echo asked >asked' TERM; echo $$ >first; wait; wait; wait");
  checks_->set_wanted_run(1);
  ASSERT_TRUE(until([&] { return !file("stubborn").empty() && !file("first").empty(); }));
  checks_->set_wanted_run(0);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 0; }));
  EXPECT_TRUE(until([&] { return is_gone("first") && is_gone("stubborn"); }));
  EXPECT_EQ(file("asked"), "asked\n") << "before it is killed";
}

TEST_F(NodeChecksTest, AnotherRunEndsTheOneUnderWay) {
  begin("echo $$ >>pids; exec sleep 1000");
  checks_->set_wanted_run(1);
  ASSERT_TRUE(until([&] { return !file("pids").empty(); }));
  checks_->set_wanted_run(2);
  ASSERT_TRUE(until([&] { return checks_->report().run() == 2; }));
  EXPECT_TRUE(checks_->report().runs());
  EXPECT_TRUE(is_gone("pids"));
}

}  // namespace
}  // namespace ff::scheduler
