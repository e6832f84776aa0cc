// Shared by the files of `ff validate`: the history of the node, and the output of findings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/schedule/client.h"
#include "ops/validate/history.h"
#include "ops/validate/validate.h"

namespace ff::cmd {

// The history in the state directory; warns if it was corrupt and was recreated.
struct NodeHistory {
  std::string dir;  // the state directory
  validate::History history;
};
Result<NodeHistory> open_node_history(Session& session);

// A report as JSON, for --json and the web hook.
Json report_json(const validate::ValidationReport& report);
// Prints a table: passed findings one line per check, others one line per finding and the next
// step. All with --verbose; no passed findings with --quiet.
void show_report(Session& session, const validate::ValidationReport& report);
// "2 failed, 40 passed"
std::string counts_text(const validate::ValidationReport& report);
Color color_of(validate::Verdict verdict);
double median_of(const validate::History::Series& series);

// Replaces DIR/ff_validate.prom, for the textfile collector of Prometheus' node exporter.
Result<void> write_textfile(const std::string& dir, const validate::ValidationReport& report);
// Errors: usage: not an http or https URL.
Result<void> check_hook(const std::string& url);
// Posts JSON. Errors: unreachable, failed (status is not 2xx). They name only the host: the rest of
// the URL often contains a secret.
Result<void> post_json(const std::string& url, const Json& body, int64_t timeout_ns);

// A self-contained HTML page: the last run, a plot of every value, the last runs.
std::string html_report(const std::string& host, const std::vector<validate::RunRecord>& runs,
                        const std::vector<validate::Finding>& last,
                        const std::vector<validate::History::Series>& series);

// --drain (drain.cc): reports a run to the scheduler, which drains the node or returns it.
struct DrainOptions {
  bool drain = false;
  ScheduleOptions schedule;
  std::optional<std::string> node;  // default: this machine
};
void declare_validate_drain(Command& run, DrainOptions& options);
// Checks the options before the loads run. Errc::usage; Errc::refused, not_found: of its files.
// `recorded`: a recorded tree or a saved log, which may be from any machine.
Result<void> check_drain(const DrainOptions& options, bool recorded);
// Prints the effect on the node, and returns it for JSON. Errors: those of the scheduler.
Result<Json> report_to_scheduler(Session& session, const DrainOptions& options,
                                 const scheduler::wire::Verdict& verdict);

void declare_validate_run(Command& validate);
void declare_validate_adopt(Command& validate);
void declare_validate_list(Command& validate);
void declare_validate_report(Command& validate);
void declare_validate_xid(Command& validate);
void declare_validate_faults(Command& validate);  // development builds

}  // namespace ff::cmd
