// show.cc: prints a run to a terminal, a pipe, or as JSON.
#include <algorithm>

#include "cmd/validate/validate.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using validate::CheckResult;
using validate::Finding;
using validate::Verdict;

bool is_well(Verdict verdict) { return verdict == Verdict::pass || verdict == Verdict::skipped; }

Cell verdict_cell(Verdict verdict) {
  return {std::string(validate::verdict_name(verdict)), color_of(verdict)};
}

std::string expected_of(const Finding& finding) {
  if (finding.source.empty() || finding.expected.empty()) return finding.expected;
  return fmt::format("{} ({})", finding.expected, finding.source);
}

void add_row(Table& table, const Finding& finding) {
  table.row({verdict_cell(finding.verdict), finding.name, finding.part, finding.found,
             is_well(finding.verdict) ? "" : expected_of(finding)});
}

// The passed findings of one check in one line.
void add_summary(Table& table, const CheckResult& outcome) {
  std::vector<const Finding*> passed;
  for (const Finding& finding : outcome.findings) {
    if (finding.verdict == Verdict::pass) passed.push_back(&finding);
  }
  if (passed.empty()) return;
  const Finding& first = *passed.front();
  if (passed.size() == 1) return add_row(table, first);
  table.row({verdict_cell(Verdict::pass), outcome.check->name, "",
             fmt::format("{} findings", passed.size()), ""});
}

}  // namespace

Color color_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return Color::green;
    case Verdict::fail: return Color::red;
    case Verdict::degraded:
    case Verdict::could_not_run: return Color::yellow;
    case Verdict::skipped: break;
  }
  return Color::dim;
}

std::string counts_text(const validate::ValidationReport& report) {
  std::vector<std::string> parts;
  const std::vector<Finding> findings = report.findings();
  constexpr std::array kOrder = {
      std::pair(Verdict::fail, "failed"), std::pair(Verdict::degraded, "degraded"),
      std::pair(Verdict::could_not_run, "could not run"), std::pair(Verdict::pass, "passed"),
      std::pair(Verdict::skipped, "skipped")};
  for (const auto& [verdict, word] : kOrder) {
    const auto count = std::ranges::count(findings, verdict, &Finding::verdict);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, word));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json report_json(const validate::ValidationReport& report) {
  Json checks = Json::array();
  for (const CheckResult& outcome : report.results) {
    for (const Finding& finding : outcome.findings) {
      checks.push_back({{"name", finding.name},
                        {"check", outcome.check->name},
                        {"part", finding.part},
                        {"group", finding.name.substr(0, finding.name.find('.'))},
                        {"verdict", validate::verdict_name(finding.verdict)},
                        {"found", finding.found},
                        {"value", finding.value ? Json(*finding.value) : Json()},
                        {"unit", finding.unit},
                        {"expected", finding.expected},
                        {"source", finding.source},
                        {"seconds", finding.seconds},
                        {"load", finding.load},
                        {"hint", finding.hint}});
    }
  }
  Json over_budget = Json::array();
  for (const validate::Check* const check : report.over_budget) over_budget.push_back(check->name);
  return {{"host", report.host},
          {"log", report.log_file},
          {"time", format_time(report.wall_ns)},
          {"level", validate::run_level_name(report.level)},
          {"verdict", validate::verdict_name(report.verdict)},
          {"seconds", report.seconds},
          {"checks", std::move(checks)},
          {"left_out", std::move(over_budget)}};
}

void show_report(Session& session, const validate::ValidationReport& report) {
  Output& out = session.out;
  {
    auto table = out.table({{"VERDICT"}, {"CHECK"}, {"PART"}, {"FOUND"}, {"EXPECTED"}});
    for (const CheckResult& outcome : report.results) {
      for (const Finding& finding : outcome.findings) {
        if (out.mode().verbose || !is_well(finding.verdict)) add_row(table, finding);
      }
      if (!out.mode().verbose && !out.mode().quiet) add_summary(table, outcome);
    }
  }
  for (const Finding& finding : report.findings()) {
    if (is_well(finding.verdict)) continue;
    const std::string name =
        finding.part.empty() ? finding.name : fmt::format("{}, {}", finding.name, finding.part);
    if (!finding.load.empty()) {
      out.line("{}: meanwhile {}", name, finding.load);
    }
    if (!finding.hint.empty()) out.line("{}: {}", name, finding.hint);
  }
  if (!report.over_budget.empty() && !out.mode().quiet) {
    std::vector<std::string> names;
    for (const validate::Check* const check : report.over_budget) names.emplace_back(check->name);
    out.line("skipped because of the budget: {}", fmt::join(names, ", "));
  }
  if (!out.mode().quiet) {
    out.line(color_of(report.verdict), "{}: {} in {:.1f} s", validate::verdict_name(report.verdict),
             counts_text(report), report.seconds);
  }
  out.data(report_json(report));
}

}  // namespace ff::cmd
