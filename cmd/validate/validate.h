// What the files of `ff validate` share: where its history lies, and how findings are shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/schedule/client.h"
#include "ops/validate/history.h"
#include "ops/validate/validate.h"

namespace ff::cmd {

// Its own file under the state folder; says so where it was corrupt and has begun anew.
struct NodeHistory {
  std::string dir;  // the state folder
  validate::History history;
};
Result<NodeHistory> open_node_history(Session& session);

// A report as `--json` has it, and as the web hook gets it.
Json report_json(const validate::Report& report);
// A table: of what passes one line a check, of the rest one line a finding and what to do about it.
// All of it with --verbose; what passes not with --quiet.
void show_report(Session& session, const validate::Report& report);
// "2 failed, 40 passed"
std::string counts_of(const validate::Report& report);
Color color_of(validate::Verdict verdict);
double median_of(const validate::History::Series& series);

// Replaces DIR/ff_validate.prom, for the textfile collector of Prometheus' node exporter.
Result<void> write_textfile(const std::string& dir, const validate::Report& report);
// Errors: usage for what is no http or https URL.
Result<void> check_hook(const std::string& url);
// Posts JSON. Errors: unreachable, failed (an answer that is no 2xx).
// They name the host and not the rest of the URL, which often holds a secret.
Result<void> post_json(const std::string& url, const Json& body, int64_t timeout_ns);

// One HTML file that needs no other: the last run, a plot of every value, the last runs.
std::string html_report(const std::string& host, const std::vector<validate::RunRecord>& runs,
                        const std::vector<validate::Finding>& last,
                        const std::vector<validate::History::Series>& series);

// --drain (drain.cc): the scheduler hears of a run, and takes the node out or back.
struct DrainOptions {
  bool drain = false;
  ScheduleOptions schedule;
  std::optional<std::string> node;  // this machine, unless given
};
void declare_validate_drain(Command& run, DrainOptions& options);
// Before the loads. Errc::usage; Errc::refused, not_found: its files. `recorded`: a tree is looked
// at, which may be any machine's.
Result<void> check_drain(const DrainOptions& options, bool recorded);
// Says what has become of the node, and returns it for JSON. Errors: the scheduler's.
Result<Json> tell_scheduler(Session& session, const DrainOptions& options,
                            const scheduler::wire::Verdict& verdict);

void declare_validate_run(Command& validate);
void declare_validate_adopt(Command& validate);
void declare_validate_list(Command& validate);
void declare_validate_report(Command& validate);
void declare_validate_xid(Command& validate);
void declare_validate_faults(Command& validate);  // development builds

}  // namespace ff::cmd
