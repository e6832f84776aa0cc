// log.cc: which lines are new, and where those are that the kernel has forgotten: its own memory of
// them is a few hundred KiB, which a busy week fills many times.
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

// When the machine started, by the wall clock; not before: what was told twice does less harm than
// what was not told.
int64_t boot_wall_ns(const Context& context) {
  constexpr int64_t kStep = 20 * kMillisecond;  // of what /proc/uptime says, and some
  const double up = context.tree.maybe_number("/proc/uptime").value_or(0);
  return context.clock.wall_ns() - static_cast<int64_t>(up * 1e9) + kStep;
}

struct Gathered {
  LogJudge judge = {};
  std::vector<std::string> sources = {};
  int64_t lost_until_ns = 0;  // from the last run on; 0: nothing is
};

// Lines of a time, from what keeps logs on this machine: systemd's journal, else files of syslog.
// False: nothing here does, it may not be read, or holds no line of the kernel's from any time.
bool gather_kept(const Context& context, int64_t from_ns, int64_t until_ns, Gathered& gathered) {
  bool any = false;
  const auto add = [&](LogLine line) {
    any |= line.wall_ns && !line.text.empty();
    if (line.wall_ns && *line.wall_ns >= from_ns && *line.wall_ns < until_ns) {
      gathered.judge.add(line);
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
      for (const std::string_view line : split(journal->output, '\n')) {
        if (!line.empty()) add(parse_log_line(line, now_ns));
      }
      gathered.sources.emplace_back("journal");
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
    gathered.sources.push_back(file);
    return true;
  }
  return false;
}

Result<void> gather(const Context& context, Gathered& gathered) {
  if (!context.log_file.empty()) {
    gathered.sources.push_back(context.log_file);
    FF_TRY(read_log(context.tree.disk(), context.log_file, context.clock.wall_ns(),
                    [&](const LogLine& line) { gathered.judge.add(line); }));
    if (gathered.judge.saw_a_log()) return {};
    Error error = fail(Errc::failed, "{}: no line looks like one of the kernel", context.log_file);
    error.hint = "Save one with: dmesg, or journalctl -k";
    return error;
  }
  const int64_t now_ns = context.clock.wall_ns();
  const int64_t from_ns = context.since_ns > 0 ? context.since_ns : now_ns - kWeekNs;
  if (!context.tree.is_machine()) {
    if (gather_kept(context, 0, now_ns, gathered)) return {};
    Error error = fail(Errc::not_found, "this tree holds no log of the kernel (/var/log/kern.log)");
    error.hint = "Give it with --log FILE.";
    return error;
  }
  const auto records = read_kernel_messages();
  if (!records) {
    if (gather_kept(context, from_ns, now_ns, gathered)) return {};
    return records.error();
  }
  gathered.sources.emplace_back("/dev/kmsg");
  const int64_t boot_ns = boot_wall_ns(context);
  int64_t oldest_ns = now_ns;
  for (const std::string& record : *records) {
    const auto line = parse_kmsg(record);
    if (!line) continue;
    const int64_t at_ns = boot_ns + line->boot_ns.value_or(0);
    oldest_ns = std::min(oldest_ns, at_ns);
    if (at_ns >= from_ns) gathered.judge.add(*line);
  }
  if (from_ns >= oldest_ns || gather_kept(context, from_ns, oldest_ns, gathered)) return {};
  // Before the first run nobody has asked for it.
  if (context.since_ns > 0) gathered.lost_until_ns = oldest_ns;
  return {};
}

}  // namespace

void check_log(const Context& context) {
  Gathered gathered;
  if (const auto done = gather(context, gathered); !done) {
    return context.report(
        {.name = "log.kernel", .found = done.error().message, .hint = done.error().hint});
  }
  if (gathered.lost_until_ns > 0) {
    context.report(
        {.name = "log.kernel",
         .part = "what is lost",
         .found = fmt::format("nobody has kept the log from {} to {}",
                              format_time(context.since_ns), format_time(gathered.lost_until_ns)),
         .hint = "Keep the kernel's log: systemd-journald with Storage=persistent, or a "
                 "syslog daemon."});
  }
  for (Finding& finding : gathered.judge.findings()) {
    if (finding.verdict == Verdict::pass && finding.part.empty()) {
      finding.found += fmt::format(" of {}", fmt::join(gathered.sources, ", "));
    }
    context.report(std::move(finding));
  }
}

}  // namespace ff::validate
