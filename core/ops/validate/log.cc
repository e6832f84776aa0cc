// log.cc: selects new lines, and reads lines that the kernel has already overwritten from
// persistent logs: its ring buffer has a few hundred KiB, which a busy week fills many times.
#include <algorithm>
#include <array>

#include "ops/validate/kernel_messages.h"
#include "ops/validate/log_rules.h"
#include "ops/validate/program.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::validate {

namespace {

constexpr int64_t kWeekNs = 7 * 86'400 * kSecond;
constexpr int64_t kJournalNs = 8 * kSecond;
constexpr size_t kJournalMax = 64 * kMiB;

// The boot time by the wall clock, rounded up: a line that is reported twice does less harm than
// one that is missed.
int64_t boot_wall_ns(const CheckContext& context) {
  constexpr int64_t kStep = 20 * kMillisecond;  // the resolution of /proc/uptime, and some
  const double up = context.tree.maybe_number("/proc/uptime").value_or(0);
  return context.clock.wall_ns() - static_cast<int64_t>(up * 1e9) + kStep;
}

struct CollectedLog {
  LogAnalyzer judge = {};
  std::vector<std::string> sources = {};
  int64_t lost_until_ns = 0;  // lines since the last run are lost until then; 0: none
};

// Reads lines of a time span from persistent logs of this machine: the systemd journal, else syslog
// files. False: there are none, they are unreadable, or contain no kernel line at all.
bool read_persistent(const CheckContext& context, int64_t from_ns, int64_t until_ns,
                     CollectedLog& collected) {
  bool any = false;
  const auto add = [&](KernelLogLine line) {
    any |= line.wall_ns && !line.text.empty();
    if (line.wall_ns && *line.wall_ns >= from_ns && *line.wall_ns < until_ns) {
      collected.judge.add(line);
    }
  };
  const int64_t now_ns = context.clock.wall_ns();
  if (context.tree.is_machine()) {
    const auto journal =
        run_program("journalctl",
                    {"--no-pager", "--quiet", "--output=short-iso-precise", "_TRANSPORT=kernel",
                     fmt::format("--since=@{}", from_ns / kSecond),
                     fmt::format("--until=@{}", until_ns / kSecond)},
                    context.clock, kJournalNs, kJournalMax);
    if (journal && journal->ended_well() && !journal->output.empty()) {
      ContinuationLines continuation;
      for (const std::string_view line : split(journal->output, '\n')) {
        if (line.empty()) continue;
        KernelLogLine parsed = parse_kernel_log_line(line, now_ns);
        continuation.join(parsed);
        add(std::move(parsed));
      }
      collected.sources.emplace_back("journal");
      return true;
    }
  }
  any = false;
  constexpr std::array kFiles = {"/var/log/kern.log", "/var/log/messages"};
  for (const char* const name : kFiles) {
    const std::string file = name;
    for (const std::string& path : {file + ".1", file}) {
      (void)read_log(context.tree.disk(), context.tree.on_disk(path), now_ns, add);
    }
    if (!any) continue;
    collected.sources.push_back(file);
    return true;
  }
  return false;
}

Result<void> gather(const CheckContext& context, CollectedLog& collected) {
  if (!context.log_file.empty()) {
    collected.sources.push_back(context.log_file);
    FF_TRY(read_log(context.tree.disk(), context.log_file, context.clock.wall_ns(),
                    [&](const KernelLogLine& line) { collected.judge.add(line); }));
    if (collected.judge.is_kernel_log()) return {};
    Error error = fail(Errc::failed, "{}: no line looks like one of the kernel", context.log_file);
    error.hint = "Save one with: dmesg, or journalctl -k";
    return error;
  }
  const int64_t now_ns = context.clock.wall_ns();
  const int64_t from_ns = context.since_ns > 0 ? context.since_ns : now_ns - kWeekNs;
  if (!context.tree.is_machine()) {
    if (read_persistent(context, 0, now_ns, collected)) return {};
    Error error = fail(Errc::not_found, "this tree contains no kernel log (/var/log/kern.log)");
    error.hint = "Give it with --log FILE.";
    return error;
  }
  const auto records = read_kernel_messages();
  if (!records) {
    if (read_persistent(context, from_ns, now_ns, collected)) return {};
    return records.error();
  }
  collected.sources.emplace_back("/dev/kmsg");
  const int64_t boot_ns = boot_wall_ns(context);
  int64_t oldest_ns = now_ns;
  for (const std::string& record : *records) {
    const auto line = parse_kmsg(record);
    if (!line) continue;
    const int64_t at_ns = boot_ns + line->boot_ns.value_or(0);
    oldest_ns = std::min(oldest_ns, at_ns);
    if (at_ns >= from_ns) collected.judge.add(*line);
  }
  if (from_ns >= oldest_ns || read_persistent(context, from_ns, oldest_ns, collected)) return {};
  // Before the first run nothing is required.
  if (context.since_ns > 0) collected.lost_until_ns = oldest_ns;
  return {};
}

}  // namespace

void check_log(const CheckContext& context) {
  CollectedLog collected;
  if (const auto done = gather(context, collected); !done) {
    return context.report(
        {.name = "log.kernel", .found = done.error().message, .hint = done.error().hint});
  }
  if (collected.lost_until_ns > 0) {
    context.report(
        {.name = "log.kernel",
         .part = "lost lines",
         .found = fmt::format("the kernel log from {} to {} was not kept",
                              format_time(context.since_ns), format_time(collected.lost_until_ns)),
         .hint = "Keep the kernel log: systemd-journald with Storage=persistent, or a "
                 "syslog daemon."});
  }
  for (Finding& finding : collected.judge.findings()) {
    if (finding.verdict == Verdict::pass && finding.part.empty()) {
      finding.found += fmt::format(" of {}", fmt::join(collected.sources, ", "));
    }
    context.report(std::move(finding));
  }
}

}  // namespace ff::validate
