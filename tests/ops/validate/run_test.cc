// Running checks: each in its own process, killed at its deadline and named, loads alone; and every
// injected fault is found.
#include "ops/validate/run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cmd/validate/host_allreduce.h"
#include "ops/validate/validate.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::validate {

// The name of a parameterized test.
static void PrintTo(const NamedFault& fault, std::ostream* out) { *out << fault.name; }

namespace {

constexpr int64_t kSoon = 20 * kSecond;

Check make(const char* name, CheckCost cost, void (*run)(const CheckContext&),
           int64_t deadline_ns = kSoon) {
  return {name, "a check of a test", cost, deadline_ns, 0.1, 50, run};
}

class RunTest : public testing::Test {
 protected:
  std::vector<CheckResult> run(const std::vector<const Check*>& checks, std::string job = {}) {
    const RunPlan plan{.checks = checks,
                       .inventory = inventory_,
                       .scratch = dir_.path(),
                       .allreduce_ranks = cmd::host_allreduce_ranks(),
                       .job = std::move(job),
                       .before = [](const auto&, const auto&) { return std::nullopt; }};
    auto results = run_checks(tree_, clock_, stop_, plan, [&](const CheckResult& one) {
      ended_.emplace_back(one.check->name);
    });
    EXPECT_TRUE(results.ok()) << results.error().message;
    return results ? *results : std::vector<CheckResult>();
  }
  // The last finding of the only check.
  Finding last(const Check& check) {
    const auto results = run({&check});
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? Finding() : results[0].findings.back();
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  StopToken stop_{clock_};
  SystemTree tree_{disk_, "/"};
  std::optional<Inventory> inventory_;
  std::vector<std::string> ended_;
};

void say_all(const CheckContext& context) {
  context.report({.name = "test.all",
                  .part = "a \"part\"\nof two lines",
                  .verdict = Verdict::degraded,
                  .found = "8 \xff x8",
                  .value = 0.1,
                  .unit = "B/s",
                  .better = Better::lower,
                  .expected = "16",
                  .source = "a test",
                  .hint = "Do."});
}

TEST_F(RunTest, AFindingComesThroughWhole) {
  const Check check = make("test.all", CheckCost::reads, say_all);
  const Finding said = last(check);
  EXPECT_EQ(said.name, "test.all");
  EXPECT_EQ(said.part, "a \"part\"\nof two lines");
  EXPECT_EQ(said.verdict, Verdict::degraded);
  EXPECT_EQ(said.found, "8 \xEF\xBF\xBD x8");  // invalid UTF-8 is replaced
  EXPECT_EQ(said.value, 0.1);
  EXPECT_EQ(said.unit, "B/s");
  EXPECT_EQ(said.better, Better::lower);
  EXPECT_EQ(said.expected, "16");
  EXPECT_EQ(said.source, "a test");
  EXPECT_EQ(said.hint, "Do.");
  EXPECT_EQ(ended_, std::vector<std::string>{"test.all"});
}

TEST_F(RunTest, WhatIsNoFindingIsNone) {
  for (const char* const line : {"", "{", "[]", "{\"name\":\"x\"}", "{\"verdict\":\"pass\"}",
                                 "{\"name\":\"x\",\"verdict\":\"good\"}", "{\"name\":1}"}) {
    EXPECT_FALSE(from_line(line).has_value()) << line;
  }
  EXPECT_TRUE(from_line("{\"name\":\"x\",\"verdict\":\"pass\",\"value\":\"no\"}").has_value());
}

void hang(const CheckContext& context) {
  context.report({.name = "test.hang", .verdict = Verdict::pass, .found = "before"});
  for (;;) ::pause();
}

TEST_F(RunTest, AHangEndsAtItsDeadlineAndIsNamed) {
  const Check hangs = make("test.hang", CheckCost::reads, hang, kSecond / 5);
  const Check sound = make("test.all", CheckCost::reads, say_all);
  const auto results = run({&hangs, &sound});
  ASSERT_EQ(results.size(), 2u);
  ASSERT_EQ(results[0].findings.size(), 2u);
  EXPECT_EQ(results[0].findings[0].found, "before");
  const Finding& end = results[0].findings[1];
  EXPECT_EQ(end.name, "test.hang");
  EXPECT_EQ(end.verdict, Verdict::could_not_run);
  EXPECT_NE(end.found.find("missed its deadline"), std::string::npos) << end.found;
  EXPECT_EQ(results[1].findings.back().name, "test.all");
}

TEST_F(RunTest, HowACheckEndsIsToldAndNoPass) {
  const auto verdict = [&](const char* name, void (*ends)(const CheckContext&)) {
    const Check check = make(name, CheckCost::reads, ends);
    const Finding said = last(check);
    EXPECT_EQ(said.name, name);
    return said.verdict;
  };
  EXPECT_EQ(verdict("test.bus", [](const CheckContext&) { (void)::raise(SIGBUS); }), Verdict::fail);
  EXPECT_EQ(verdict("test.illegal", [](const CheckContext&) { (void)::raise(SIGILL); }),
            Verdict::fail);
  // Memory ran out: the hardware is unknown.
  EXPECT_EQ(verdict("test.killed", [](const CheckContext&) { (void)::raise(SIGKILL); }),
            Verdict::could_not_run);
  EXPECT_EQ(verdict("test.silent", [](const CheckContext&) {}), Verdict::could_not_run);
  EXPECT_EQ(verdict("test.exits", [](const CheckContext&) { ::_exit(7); }), Verdict::could_not_run);
}

void say_much(const CheckContext& context) {
  for (int i = 0; i < 2000; i++) {
    context.report({.name = "test.much",
                    .part = std::to_string(i),
                    .verdict = Verdict::pass,
                    .found = std::string(100, 'x')});
  }
}

TEST_F(RunTest, MuchIsHeardWhole) {
  const Check check = make("test.much", CheckCost::reads, say_much);
  EXPECT_EQ(run({&check})[0].findings.size(), 2000u);
}

// Its start and end, as two values.
void span(const CheckContext& context) {
  const auto now = [&] { return static_cast<double>(context.clock.steady_ns()); };
  context.report({.name = "test.began", .verdict = Verdict::pass, .value = now()});
  context.clock.sleep_ns(50 * kMillisecond);
  context.report({.name = "test.ended", .verdict = Verdict::pass, .value = now()});
}

TEST_F(RunTest, LoadsRunAloneAndAfterWhatReads) {
  const Check first = make("test.one", CheckCost::load, span),
              second = make("test.two", CheckCost::load, span);
  const Check reads = make("test.reads", CheckCost::reads, span);
  const auto results = run({&first, &reads, &second});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].check, &first) << "in the order of the plan";
  const auto began = [&](size_t i) { return *results[i].findings[0].value; };
  const auto ended = [&](size_t i) { return *results[i].findings[1].value; };
  EXPECT_LE(ended(1), began(0));
  EXPECT_LE(ended(0), began(2));
}

TEST_F(RunTest, WhatRunsIsTold) {
  const Check one = make("test.one", CheckCost::load, span),
              two = make("test.two", CheckCost::load, span);
  std::vector<std::string> seen;
  const RunPlan plan{.checks = {&one, &two},
                     .inventory = inventory_,
                     .before = {},
                     .progress = [&](const RunProgress& now) {
                       EXPECT_EQ(now.total, 2u);
                       EXPECT_GE(now.seconds, 0);
                       const char* const name = now.check == nullptr ? "none" : now.check->name;
                       seen.push_back(fmt::format("{} done, {}", now.done, name));
                     }};
  ASSERT_TRUE(run_checks(tree_, clock_, stop_, plan, [](const CheckResult&) {}).ok());
  for (const char* const text : {"0 done, test.one", "1 done, test.two"}) {
    EXPECT_NE(std::ranges::find(seen, text), seen.end()) << text;
  }
}

TEST_F(RunTest, BesideAJobLoadsDoNotRun) {
  const Check load = make("test.load", CheckCost::load, say_all);
  const Check reads = make("test.reads", CheckCost::reads, say_all);
  const auto results = run({&load, &reads}, "slurmstepd (12)");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].findings[0].verdict, Verdict::could_not_run);
  EXPECT_NE(results[0].findings[0].found.find("slurmstepd (12)"), std::string::npos);
  EXPECT_EQ(results[1].findings[0].verdict, Verdict::degraded);
}

TEST_F(RunTest, AStopEndsItAndEveryCheck) {
  const Check hangs = make("test.hang", CheckCost::reads, hang);
  stop_.request();
  const RunPlan plan{.checks = {&hangs}, .inventory = inventory_, .before = {}};
  const auto results = run_checks(tree_, clock_, stop_, plan, [](const CheckResult&) {});
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().code, Errc::interrupted);
}

TEST(SelectChecks, ByLevelNameAndBudget) {
  std::vector<const Check*> over_budget;
  EXPECT_EQ(select_checks(RunLevel::burn_in, {}, {}, over_budget).size(), all_checks().size());
  for (const Check* const check :
       select_checks(RunLevel::quick, {"pci", "host.cpu"}, {}, over_budget)) {
    const std::string name = check->name;
    EXPECT_TRUE(name == "host.cpu" || name.starts_with("pci.")) << name;
  }
  EXPECT_TRUE(over_budget.empty());
  const auto chosen = select_checks(RunLevel::quick, {}, 2.5, over_budget);
  EXPECT_FALSE(chosen.empty());
  ASSERT_FALSE(over_budget.empty());
  for (const Check& check : all_checks()) {
    if (check.cost != CheckCost::reads || check.seconds > 2.5) continue;
    EXPECT_EQ(std::ranges::count(chosen, &check), 1) << check.name << " takes no time from others";
  }
  double seconds = 0;
  for (const Check* const check : chosen) {
    if (check->cost == CheckCost::load) seconds += check->seconds;
  }
  EXPECT_LE(seconds, 2.5);
  // Each selected load is worth at least as much as each omitted one that would have fit.
  for (const Check* const out : over_budget) {
    EXPECT_EQ(std::ranges::count(chosen, out), 0);
    for (const Check* const in : chosen) {
      if (in->cost != CheckCost::load || in->seconds < out->seconds) continue;
      EXPECT_GE(in->worth, out->worth);
    }
  }
}

TEST(AllChecks, AreNamedAfterGroupsAndOnce) {
  std::vector<std::string> names;
  for (const Check& check : all_checks()) {
    EXPECT_NE(std::string_view(check.name).find('.'), std::string_view::npos) << check.name;
    EXPECT_GT(check.deadline_ns(RunLevel::quick), 0) << check.name;
    EXPECT_EQ(std::ranges::count(names, check.name), 0) << check.name;
    names.emplace_back(check.name);
  }
}

TEST(MergeBest, TakesTheBetterValueAndForgetsNoFailure) {
  const auto finding = [](double value, Better better, Verdict verdict = Verdict::pass) {
    return Finding{.name = "a.b", .verdict = verdict, .value = value, .better = better};
  };
  CheckResult outcome{.findings = {finding(5, Better::higher)}};
  merge_best(outcome, {.findings = {finding(7, Better::higher)}});
  EXPECT_EQ(outcome.findings[0].value, 7);
  merge_best(outcome, {.findings = {finding(6, Better::higher)}});
  EXPECT_EQ(outcome.findings[0].value, 7);
  CheckResult lower{.findings = {finding(5, Better::lower)}};
  merge_best(lower, {.findings = {finding(7, Better::lower)}});
  EXPECT_EQ(lower.findings[0].value, 5);
  CheckResult slow{.findings = {finding(9, Better::higher, Verdict::degraded)}};
  merge_best(slow, {.findings = {finding(8, Better::higher)}});
  EXPECT_EQ(slow.findings[0].verdict, Verdict::pass);
  CheckResult wrong{.findings = {finding(1, Better::higher, Verdict::fail)}};
  merge_best(wrong, {.findings = {finding(8, Better::higher)}});
  EXPECT_EQ(wrong.findings[0].verdict, Verdict::fail);
  merge_best(outcome, {.findings = {finding(9, Better::higher, Verdict::fail)}});
  EXPECT_TRUE(std::ranges::any_of(outcome.findings,
                                  [](const Finding& one) { return one.verdict == Verdict::fail; }));
}

class FaultTest : public RunTest, public testing::WithParamInterface<NamedFault> {
 protected:
  ValidationReport check(InjectedFault fault) {
    const ValidationRequest request{.only = {GetParam().check},
                                    .force = true,
                                    .scratch = dir_.path(),
                                    .fault = fault,
                                    .allreduce_ranks = cmd::host_allreduce_ranks()};
    auto report = validate(tree_, clock_, stop_, nullptr, request, [](const CheckResult&) {});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? *report : ValidationReport();
  }
};

TEST_P(FaultTest, IsFoundByTheCheckThatHasTo) {
  const NamedFault& fault = GetParam();
  if (fault.fault == InjectedFault::core_slow && ::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    GTEST_SKIP() << "one core has no other to be slower than";
  }
  const bool hangs = fault.fault == InjectedFault::hang;
  const auto findings = check(fault.fault).findings();
  const auto found = std::ranges::find_if(findings, [&](const Finding& one) {
    return one.name == fault.check &&
           (hangs ? one.found.find("missed its deadline") != std::string::npos
                  : one.verdict >= Verdict::degraded);
  });
  ASSERT_NE(found, findings.end()) << fault.name;
  EXPECT_NE(found->hint, "") << fault.name;
  if (fault.fault == InjectedFault::core_bit) {
    EXPECT_NE(found->part.find("gemm on core"), std::string::npos) << found->part;
    EXPECT_NE(found->found.find("first in run 2"), std::string::npos) << found->found;
  }
}

TEST_P(FaultTest, WithoutItNothingFails) {
  for (const Finding& finding : check(InjectedFault::none).findings()) {
    EXPECT_NE(finding.verdict, Verdict::fail) << finding.name << " " << finding.found;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest,
                         testing::ValuesIn(all_faults().begin(), all_faults().end()),
                         [](const auto& one) {
                           std::string name = one.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ff::validate
