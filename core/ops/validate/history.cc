// history.cc: the tables, and the statistics of drift.
#include "ops/validate/history.h"

#include <algorithm>
#include <cmath>

#include "platform/base/median.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

// Earlier versions stored runs on a saved log, perhaps of another machine, with its path in
// `log_file`: they are left out.
constexpr const char* kMigrations[] = {
    "CREATE TABLE run (id INTEGER PRIMARY KEY, wall_ns INTEGER NOT NULL, boot TEXT NOT NULL,"
    " log_file TEXT NOT NULL, level TEXT NOT NULL, verdict TEXT NOT NULL, seconds REAL NOT NULL) "
    "STRICT;"
    "CREATE TABLE finding (run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, part TEXT NOT NULL, verdict TEXT NOT NULL, found TEXT NOT NULL,"
    " value REAL, unit TEXT NOT NULL, better INTEGER NOT NULL, expected TEXT NOT NULL, source TEXT "
    "NOT NULL,"
    " hint TEXT NOT NULL, load TEXT NOT NULL, seconds REAL NOT NULL) STRICT;"
    "CREATE INDEX finding_of_run ON finding (run);"
    "CREATE INDEX finding_of_part ON finding (name, part, run);"
    "CREATE TABLE inventory (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE adopted (wall_ns INTEGER NOT NULL) STRICT",
};
constexpr int64_t kRunsMax = 1000;  // some twenty years of weekly runs, or a month of hourly ones

}  // namespace

Result<History> History::open(const std::string& path, Clock& clock) {
  FF_TRY(auto database,
         db::Database::open(path, kMigrations, clock, {.on_corrupt = db::OnCorrupt::recreate}));
  return History(std::move(database));
}

Result<void> History::add(const RunRecord& run, const std::vector<Finding>& findings) {
  FF_TRY(auto transaction, database_.begin());
  FF_TRY(auto put_run,
         database_.prepare("INSERT INTO run (wall_ns, boot, log_file, level, verdict, "
                           "seconds) VALUES (?, ?, '', ?, ?, ?)"));
  put_run.bind(run.wall_ns, std::string_view(run.boot), run_level_name(run.level),
               verdict_name(run.verdict), run.seconds);
  FF_TRY(put_run.run());
  const int64_t id = database_.last_insert_id();
  FF_TRY(auto put,
         database_.prepare("INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  for (const Finding& one : findings) {
    put.bind(id, std::string_view(one.name), std::string_view(one.part), verdict_name(one.verdict),
             std::string_view(one.found), one.value, std::string_view(one.unit),
             static_cast<int64_t>(one.better), std::string_view(one.expected),
             std::string_view(one.source), std::string_view(one.hint), std::string_view(one.load),
             one.seconds);
    FF_TRY(put.run());
  }
  FF_TRY(auto drop, database_.prepare("DELETE FROM run WHERE id <= ?"));
  drop.bind(id - kRunsMax);
  FF_TRY(drop.run());
  return transaction.commit();
}

Result<std::vector<RunRecord>> History::runs(size_t most) {
  FF_TRY(auto select, database_.prepare("SELECT id, wall_ns, boot, level, verdict, seconds "
                                        "FROM run WHERE log_file = '' ORDER BY id DESC LIMIT ?"));
  select.bind(static_cast<int64_t>(most));
  std::vector<RunRecord> runs;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return runs;
    runs.push_back({.id = select.integer(0),
                    .wall_ns = select.integer(1),
                    .boot = std::string(select.text(2)),
                    .level = parse_run_level(select.text(3)).value_or(RunLevel::quick),
                    .verdict = parse_verdict(select.text(4)).value_or(Verdict::could_not_run),
                    .seconds = select.real(5)});
  }
}

Result<std::vector<Finding>> History::findings(int64_t run) {
  FF_TRY(auto select,
         database_.prepare("SELECT name, part, verdict, found, value, unit, expected, source, hint,"
                           " load, seconds FROM finding WHERE run = ? ORDER BY rowid"));
  select.bind(run);
  std::vector<Finding> found;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return found;
    Finding& one = found.emplace_back();
    one.name = select.text(0);
    one.part = select.text(1);
    one.verdict = parse_verdict(select.text(2)).value_or(Verdict::could_not_run);
    one.found = select.text(3);
    if (!select.is_null(4)) one.value = select.real(4);
    one.unit = select.text(5);
    one.expected = select.text(6);
    one.source = select.text(7);
    one.hint = select.text(8);
    one.load = select.text(9);
    one.seconds = select.real(10);
  }
}

Result<std::vector<History::Series>> History::series(size_t runs) {
  FF_TRY(auto select,
         database_.prepare("SELECT name, part, unit, run.wall_ns, value, finding.verdict, load "
                           "FROM finding JOIN run ON run.id = finding.run WHERE value IS NOT NULL "
                           "AND better <> 0 AND run > (SELECT max(id) FROM run) - ? "
                           "ORDER BY name, part, run"));
  select.bind(static_cast<int64_t>(runs));
  std::vector<Series> all;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return all;
    if (all.empty() || all.back().name != select.text(0) || all.back().part != select.text(1)) {
      all.push_back(
          {.name = std::string(select.text(0)), .part = std::string(select.text(1)), .unit = {}});
    }
    all.back().unit = select.text(2);
    all.back().values.push_back(
        {.wall_ns = select.integer(3),
         .value = select.real(4),
         .verdict = parse_verdict(select.text(5)).value_or(Verdict::could_not_run),
         .load = std::string(select.text(6))});
  }
}

Result<std::vector<double>> History::baseline(const std::string& name, const std::string& part) {
  FF_TRY(auto select,
         database_.prepare("SELECT value FROM finding JOIN run ON run.id = finding.run WHERE "
                           "name = ? AND part = ? AND value IS NOT NULL AND "
                           "finding.verdict = 'pass' AND finding.load = '' AND "
                           "run.wall_ns >= ifnull((SELECT max(wall_ns) FROM adopted), 0) "
                           "ORDER BY finding.run DESC LIMIT ?"));
  select.bind(std::string_view(name), std::string_view(part), static_cast<int64_t>(Drift::kRuns));
  std::vector<double> found;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return found;
    found.push_back(select.real(0));
  }
}

Result<History::Values> History::last_values(const std::string& boot) {
  // With max(), SQLite takes the other columns from the same row.
  FF_TRY(auto select, database_.prepare("SELECT name, part, value, max(run) FROM finding "
                                        "JOIN run ON run.id = finding.run WHERE run.boot = ? "
                                        "AND value IS NOT NULL GROUP BY name, part"));
  select.bind(std::string_view(boot));
  Values found;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return found;
    found[{std::string(select.text(0)), std::string(select.text(1))}] = select.real(2);
  }
}

Result<int64_t> History::last_log() {
  FF_TRY(auto select, database_.prepare("SELECT ifnull(max(wall_ns), 0) FROM run JOIN finding "
                                        "ON run.id = finding.run WHERE name GLOB 'log.*' AND "
                                        "finding.verdict <> 'could-not-run' AND log_file = ''"));
  FF_TRY(const bool row, select.step());
  return row ? select.integer(0) : 0;
}

Result<std::optional<Inventory>> History::inventory() {
  FF_TRY(auto adopted, database_.prepare("SELECT wall_ns FROM adopted"));
  FF_TRY(const bool any, adopted.step());
  if (!any) return std::optional<Inventory>();
  // Earlier versions recorded that the clock was synchronised, which is no part.
  FF_TRY(auto select, database_.prepare("SELECT key, value FROM inventory WHERE key <> 'clock'"));
  Inventory inventory;
  for (;;) {
    FF_TRY(const bool row, select.step());
    if (!row) return std::optional(std::move(inventory));
    inventory[std::string(select.text(0))] = select.text(1);
  }
}

Result<void> History::adopt(const Inventory& inventory, int64_t wall_ns) {
  FF_TRY(auto transaction, database_.begin());
  FF_TRY(database_.run("DELETE FROM inventory; DELETE FROM adopted"));
  FF_TRY(auto when, database_.prepare("INSERT INTO adopted VALUES (?)"));
  when.bind(wall_ns);
  FF_TRY(when.run());
  FF_TRY(auto put, database_.prepare("INSERT INTO inventory VALUES (?, ?)"));
  for (const auto& [key, value] : inventory) {
    put.bind(std::string_view(key), std::string_view(value));
    FF_TRY(put.run());
  }
  return transaction.commit();
}

Drift drift_of(double value, Better better, std::vector<double> before) {
  Drift drift{.runs = before.size()};
  if (before.size() < Drift::kLeast || better == Better::neither) return drift;
  constexpr double kShare = 0.07, kDeviations = 4;
  drift.median = median(before);
  const auto [least, most] = std::ranges::minmax(before);
  for (double& one : before) one = std::abs(one - drift.median);
  const double allowed = std::max(kShare * std::abs(drift.median), kDeviations * median(before));
  const bool higher = better == Better::higher;
  drift.bound = higher ? std::min(drift.median - allowed, least - kShare * std::abs(least))
                       : std::max(drift.median + allowed, most + kShare * std::abs(most));
  drift.bad = higher ? value < drift.bound : value > drift.bound;
  return drift;
}

void compare_with_baseline(Finding& finding, const std::vector<double>& before) {
  if (finding.better == Better::neither || !finding.value || finding.verdict != Verdict::pass)
    return;
  const Drift drift = drift_of(*finding.value, finding.better, before);
  if (drift.runs < Drift::kLeast) {
    if (finding.source.empty()) {
      finding.source = fmt::format("no baseline yet: {} runs of {}", drift.runs, Drift::kLeast);
    }
    return;
  }
  if (!drift.bad) return;
  finding.verdict = Verdict::degraded;
  const double percent = 100 * (*finding.value - drift.median) / drift.median;
  finding.found += fmt::format(", {:+.0f} % of its median", percent);
  finding.expected = fmt::format(
      "{} {}, from a median of {}", finding.better == Better::higher ? "at least" : "at most",
      value_text(drift.bound, finding.unit), value_text(drift.median, finding.unit));
  finding.source = fmt::format("the last {} runs of this node", drift.runs);
  finding.hint = "Check what else changed in this run; repeat it on an idle node.";
}

}  // namespace ff::validate
