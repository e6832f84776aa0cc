// html.cc: the page of `ff validate report --html`. It embeds its style and plots (SVG) and has no
// script; every text is escaped, since names and log lines are untrusted.
#include <algorithm>
#include <array>

#include "cmd/validate/validate.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using validate::Finding;
using validate::History;
using validate::Verdict;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --line: #8884; --dim: #777; --accent: #36c; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
p.about { color: var(--dim); margin-top: 0 }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; }
th { font-weight: 600; color: var(--dim); white-space: nowrap }
tr + tr td, thead + tbody tr:first-child td { border-top: 1px solid var(--line) }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.next { color: var(--dim) }
.findings td:nth-child(2) { white-space: nowrap }
.pass { color: #2a8a3e } .skipped { color: var(--dim) } .could-not-run { color: #a57c00 }
.degraded { color: #c96a00 } .fail { color: #c8102e }
.verdict { font-weight: 600; white-space: nowrap }
.plots { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)) }
figure { margin: 0; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .5rem }
figcaption { display: flex; justify-content: space-between; gap: 1rem }
figcaption small { color: var(--dim); display: block }
svg { width: 100%; height: auto; display: block; margin-top: .4rem }
svg text { font: 10px system-ui, sans-serif; fill: var(--dim) }
svg .trend { fill: none; stroke: var(--accent); stroke-width: 1.5 }
svg .median { stroke: var(--dim); stroke-dasharray: 3 3 }
svg circle.pass { fill: var(--accent) } svg circle.degraded { fill: #c96a00 }
svg circle.fail { fill: #c8102e } svg circle.could-not-run { fill: #a57c00 }
@media (max-width: 50rem) {
  body { margin-top: 1rem }
  .findings thead { display: none }
  .findings tr { display: block; padding: .6rem 0; border-top: 1px solid var(--line) }
  .findings td { display: block; padding: 0; border: 0 !important }
  .findings td:empty { display: none }
  .findings td[title]::before { content: attr(title) ": "; color: var(--dim) }
  th, td { padding-right: .5rem }
}
)";

std::string escape_html(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&': made += "&amp;"; break;
      case '<': made += "&lt;"; break;
      case '>': made += "&gt;"; break;
      case '"': made += "&quot;"; break;
      case '\'': made += "&#39;"; break;
      default: made += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return made;
}

std::string verdict_word(Verdict verdict) {
  return fmt::format("<span class=\"verdict {0}\">{0}</span>", validate::verdict_name(verdict));
}

std::string shown_value(double value, std::string_view unit) {
  return escape_html(validate::value_text(value, unit));
}

// Coordinates of values in a plot.
struct Frame {
  static constexpr double kWidth = 340, kHeight = 110, kLeft = 4, kRight = 336, kTop = 14,
                          kBottom = 92;
  double least, most;
  size_t count;

  double x(size_t i) const {
    if (count < 2) return (kLeft + kRight) / 2;
    return kLeft + 4 +
           (kRight - kLeft - 8) * static_cast<double>(i) / static_cast<double>(count - 1);
  }
  double y(double value) const {
    const double share = most > least ? (value - least) / (most - least) : 0.5;
    return kBottom - (kBottom - kTop) * share;
  }
};

// The axis extends a tenth beyond the values, so that noise does not look like drift.
Frame frame_of(const History::Series& series) {
  const auto [least, most] = std::ranges::minmax(series.values, {}, &History::Value::value);
  const double room = 0.1 * std::max(std::abs(most.value), std::abs(least.value));
  return {least.value - room, most.value + room, series.values.size()};
}

std::string chart_label(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     text);
}

std::string plot(const History::Series& series) {
  const Frame frame = frame_of(series);
  std::string points, dots;
  for (size_t i = 0; i < series.values.size(); i++) {
    const History::Value& one = series.values[i];
    const double x = frame.x(i), y = frame.y(one.value);
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    dots += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {}{}</title></circle>",
        validate::verdict_name(one.verdict), x, y, format_time(one.wall_ns),
        shown_value(one.value, series.unit),
        one.load.empty() ? "" : ", meanwhile " + escape_html(one.load));
  }
  const double middle = frame.y(median_of(series));
  const std::string first = format_time(series.values.front().wall_ns);
  const std::string last = format_time(series.values.back().wall_ns);
  // "2026-11-23", or "04:06" if all values are of one day.
  const bool one_day = first.substr(0, 10) == last.substr(0, 10);
  const auto when = [&](const std::string& time) {
    return one_day ? time.substr(11, 5) : time.substr(0, 10);
  };
  return fmt::format(
      "<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{} {}\">"
      "<line class=\"median\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<polyline class=\"trend\" points=\"{}\"/>{}{}{}{}{}</svg>",
      Frame::kWidth, Frame::kHeight, escape_html(series.name), escape_html(series.part),
      Frame::kLeft, Frame::kRight, middle, middle, points, dots,
      chart_label(Frame::kLeft, Frame::kTop - 4, "start", shown_value(frame.most, series.unit)),
      chart_label(Frame::kLeft, Frame::kBottom, "start", shown_value(frame.least, series.unit)),
      chart_label(Frame::kLeft, Frame::kHeight - 4, "start", when(first)),
      chart_label(Frame::kRight, Frame::kHeight - 4, "end", when(last)));
}

std::string figure(const History::Series& series) {
  const History::Value& last = series.values.back();
  return fmt::format(
      "<figure><figcaption><span>{}<small>{}</small></span>"
      "<span class=\"{}\">{}</span></figcaption>{}</figure>\n",
      escape_html(series.name), escape_html(series.part), validate::verdict_name(last.verdict),
      shown_value(last.value, series.unit), plot(series));
}

std::string finding_row(const Finding& finding) {
  std::string found = escape_html(finding.found);
  if (!finding.load.empty()) {
    found += "<div class=\"next\">meanwhile " + escape_html(finding.load) + "</div>";
  }
  if (finding.verdict > Verdict::pass && !finding.hint.empty()) {
    found += "<div class=\"next\">" + escape_html(finding.hint) + "</div>";
  }
  std::string expected = escape_html(finding.expected);
  if (!expected.empty() && !finding.source.empty()) {
    expected += fmt::format(" <span class=\"next\">({})</span>", escape_html(finding.source));
  }
  // On a narrow screen the cells are below each other, and the titles name them.
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td title=\"expected\">{}</td></tr>\n",
      verdict_word(finding.verdict), escape_html(finding.name), escape_html(finding.part), found,
      expected);
}

std::string findings_table(std::vector<Finding> findings, bool well) {
  std::erase_if(findings,
                [&](const Finding& finding) { return (finding.verdict <= Verdict::pass) != well; });
  if (findings.empty()) return "";
  std::ranges::stable_sort(findings, std::greater(), &Finding::verdict);
  std::string rows;
  for (const Finding& finding : findings) rows += finding_row(finding);
  const std::string table = fmt::format(
      "<table "
      "class=\"findings\"><thead><tr><th>Verdict</th><th>Check</th><th>Part</th><th>Found</th>"
      "<th>Expected</th></tr></thead><tbody>\n{}</tbody></table>\n",
      rows);
  if (!well) return table;
  return fmt::format("<details><summary>{} findings passed or were skipped</summary>{}</details>\n",
                     findings.size(), table);
}

std::string runs_table(const std::vector<validate::RunRecord>& runs) {
  std::string rows;
  for (const validate::RunRecord& run : runs) {
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{:.1f} s</td></tr>\n",
        format_time(run.wall_ns), validate::run_level_name(run.level), verdict_word(run.verdict),
        run.seconds);
  }
  return fmt::format(
      "<table><thead><tr><th>Time</th><th>Level</th><th>Verdict</th><th>Took</th></tr></thead>"
      "<tbody>\n{}</tbody></table>\n",
      rows);
}

}  // namespace

std::string html_report(const std::string& host, const std::vector<validate::RunRecord>& runs,
                        const std::vector<Finding>& last,
                        const std::vector<History::Series>& series) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>{0}: ff validate</title><style>{1}</style></head><body>\n"
      "<h1>{0}: {2}</h1>\n<p class=\"about\">{3}, level {4}, {5:.1f} s</p>\n",
      escape_html(host), kStyle, verdict_word(runs.front().verdict),
      format_time(runs.front().wall_ns), validate::run_level_name(runs.front().level),
      runs.front().seconds);
  page += findings_table(last, false) + findings_table(last, true);
  if (!series.empty()) page += "<h2>Values</h2>\n<div class=\"plots\">\n";
  for (const History::Series& one : series) page += figure(one);
  if (!series.empty()) page += "</div>\n";
  return page + "<h2>Runs</h2>\n" + runs_table(runs) + "</body></html>\n";
}

}  // namespace ff::cmd
