// `ff validate report`: shows the earlier runs of this node.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cmd/validate/validate.h"
#include "platform/base/median.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"

namespace ff::cmd {
namespace {

using validate::History;
using validate::RunRecord;
using validate::Verdict;

constexpr size_t kRunsMax = 1000;

struct ReportOptions {
  size_t runs = 20;
  std::optional<std::string> html;
};

// One block character per run, its height relative to the other values.
std::string spark(const History::Series& series) {
  constexpr std::array kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto [least, most] = std::ranges::minmax(series.values, {}, &History::Value::value);
  const double range = most.value - least.value;
  std::string line;
  for (const History::Value& one : series.values) {
    const double share = range > 0 ? (one.value - least.value) / range : 1;
    line += kBlocks[static_cast<size_t>(share * (kBlocks.size() - 1))];
  }
  return line;
}

Json run_json(const RunRecord& run) {
  return {{"time", format_time(run.wall_ns)},
          {"level", validate::run_level_name(run.level)},
          {"verdict", validate::verdict_name(run.verdict)},
          {"seconds", run.seconds}};
}

Json series_json(const History::Series& series) {
  Json values = Json::array();
  for (const History::Value& one : series.values) {
    values.push_back({{"time", format_time(one.wall_ns)},
                      {"value", one.value},
                      {"verdict", validate::verdict_name(one.verdict)},
                      {"load", one.load}});
  }
  return {{"name", series.name},
          {"part", series.part},
          {"unit", series.unit},
          {"median", median_of(series)},
          {"values", std::move(values)}};
}

Result<void> show(Session& session, History& history, const std::vector<RunRecord>& runs,
                  const std::vector<History::Series>& all) {
  Output& out = session.out;
  Json data{{"runs", Json::array()}, {"values", Json::array()}};
  {
    auto table = out.table(
        {{"TIME"}, {"LEVEL"}, {"VERDICT"}, {"SECONDS", Align::right}, {"WHAT WAS NOT WELL"}});
    for (const RunRecord& run : runs) {
      FF_TRY(const auto findings, history.findings(run.id));
      std::vector<std::string> bad;
      for (const validate::Finding& finding : findings) {
        const bool named = std::ranges::find(bad, finding.name) != bad.end();
        if (finding.verdict == run.verdict && run.verdict > Verdict::pass && !named) {
          bad.push_back(finding.name);
        }
      }
      table.row({format_time(run.wall_ns),
                 std::string(validate::run_level_name(run.level)),
                 {std::string(validate::verdict_name(run.verdict)), color_of(run.verdict)},
                 fmt::format("{:.1f}", run.seconds),
                 fmt::format("{}", fmt::join(bad, ", "))});
      data["runs"].push_back(run_json(run));
      data["runs"].back()["not_well"] = bad;
    }
  }
  out.line("");
  auto table = out.table({{"CHECK"},
                          {"PART"},
                          {"LAST", Align::right},
                          {"MEDIAN", Align::right},
                          {"RUNS", Align::right},
                          {"TREND"}});
  for (const History::Series& series : all) {
    const History::Value& last = series.values.back();
    table.row({series.name,
               series.part,
               {validate::value_text(last.value, series.unit), color_of(last.verdict)},
               validate::value_text(median_of(series), series.unit),
               fmt::format("{}", series.values.size()),
               spark(series)});
    data["values"].push_back(series_json(series));
  }
  out.data(std::move(data));
  return {};
}

Result<void> report(Session& session, const ReportOptions& options) {
  if (options.runs == 0 || options.runs > kRunsMax) {
    return fail(Errc::usage, "--runs {}: 1 to {}", options.runs, kRunsMax);
  }
  FF_TRY(NodeHistory node, open_node_history(session));
  FF_TRY(const auto runs, node.history.runs(options.runs));
  if (runs.empty()) {
    return Error{Errc::not_found, "there is no earlier run on this node", "ff validate"};
  }
  FF_TRY(const auto series, node.history.series(options.runs));
  if (!options.html) return show(session, node.history, runs, series);
  FF_TRY(const auto last, node.history.findings(runs.front().id));
  io::SystemDisk disk;
  FF_TRY(io::replace_file(disk, *options.html, html_report(net::host_name(), runs, last, series),
                          std::to_string(::getpid())));
  session.out.line("{}", *options.html);
  session.out.data({{"file", *options.html}});
  return {};
}

}  // namespace

double median_of(const validate::History::Series& series) {
  std::vector<double> values;
  for (const validate::History::Value& one : series.values) values.push_back(one.value);
  return median(std::move(values));
}

void declare_validate_report(Command& validate) {
  Command& command = validate.sub("report", "Show the results of earlier runs");
  auto& options = command.keep<ReportOptions>();
  command.about(
      "Shows the last runs on this node with the problems of each, and the trend of every measured "
      "value. With --html the command writes one self-contained page with a plot of each value.");
  command.option("--runs", number(options.runs), "Number of runs");
  command.option("--html", file(options.html), "Write an HTML page to this file instead");
  command.example("ff validate report", "on the terminal");
  command.example("ff validate report --runs 100 --html node.html", "an HTML page");
  command.run([&options](Session& session) { return report(session, options); });
}

}  // namespace ff::cmd
