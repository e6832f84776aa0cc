// control.cc: reads and writes the files of a shim, and finds surviving processes.
#include "ops/shim/control.h"

#include <unistd.h>

#include <csignal>
#include <set>
#include <utility>

#include "ops/shim/json_reader.h"
#include "ops/shim/spawn.h"
#include "platform/io/files.h"

namespace ff::shim {
namespace {

constexpr int64_t kKillPatienceNs = 10 * kSecond;

// Nothing: no such file.
template <class Record>
Result<std::optional<Record>> read_record(io::Disk& disk, const std::string& dir, const char* file,
                                          Result<Record> (*parse)(std::string_view)) {
  const auto text = io::read_file(disk, io::join(dir, file), kFileBytesMax);
  if (!text && text.error().code == Errc::not_found) return std::optional<Record>();
  if (!text) return text.error();
  auto record = parse(*text);
  if (!record) return std::move(record).error().with_context(dir + "/");
  return std::optional<Record>(*std::move(record));
}

Result<std::optional<ExitRecord>> read_exit(io::Disk& disk, const std::string& dir) {
  return read_record(disk, dir, kExitFile, parse_exit);
}

Result<std::optional<RunningRecord>> read_running(io::Disk& disk, const std::string& dir) {
  return read_record(disk, dir, kRunningFile, parse_running);
}

// The surviving processes of a rank whose shim is lost, except this process.
Result<std::vector<ProcessInfo>> survivors(io::Disk& disk, const RunningRecord& running) {
  const Cgroup cgroup(disk, running.cgroup_kind, running.cgroup);
  // First list all processes, then select: a pid that is reused in between is detected when it is
  // signalled.
  FF_TRY(const auto all, all_processes(disk));
  const auto listed = cgroup.members();
  const std::set<pid_t> members(listed.begin(), listed.end());
  std::set<pid_t> roots;
  std::vector<ProcessInfo> found;
  for (const ProcessInfo& one : all) {
    if (one.id.pid == ::getpid() || one.id.pid == 1) continue;
    const bool marked =
        !running.marker.empty() && !one.is_zombie && has_variable(disk, one.id.pid, running.marker);
    if (!marked && !members.contains(one.id.pid) && one.id != running.rank) continue;
    roots.insert(one.id.pid);
    if (!one.is_zombie) found.push_back(one);
  }
  for (const ProcessInfo& one : descendants(all, roots)) {
    if (!one.is_zombie && one.id.pid != ::getpid()) found.push_back(one);
  }
  return found;
}

// Returns the number of killed processes.
Result<uint64_t> kill_survivors(io::Disk& disk, Clock& clock, const RunningRecord& running) {
  Cgroup cgroup(disk, running.cgroup_kind, running.cgroup);
  std::set<ProcessId> killed;
  const int64_t end_ns = clock.steady_ns() + kKillPatienceNs;
  for (;;) {
    FF_TRY(const auto found, survivors(disk, running));
    if (found.empty()) break;
    for (const ProcessInfo& one : found) {
      if (send_signal(disk, one.id, SIGKILL)) killed.insert(one.id);
    }
    (void)cgroup.kill_all();
    if (clock.steady_ns() >= end_ns) {
      Error error = fail(Errc::deadline, "process {} of a lost rank does not exit after SIGKILL",
                         found.front().id.pid);
      error.hint = "It hangs in the kernel: see its /proc/PID/stack, or restart the machine.";
      return error;
    }
    clock.sleep_ns(kKillPauseNs);
  }
  return killed.size();
}

}  // namespace

Result<void> start_shim(std::vector<std::string> argv, const std::string& dir) {
  if (argv.empty() || !dir.starts_with('/')) {
    return fail(Errc::usage, "{}: a shim needs a program and an absolute path", dir);
  }
  argv.push_back(dir);
  return spawn_detached(argv);
}

Result<ShimState> read_state(io::Disk& disk, const std::string& dir) {
  ShimState state;
  FF_TRY(state.exit, read_exit(disk, dir));
  FF_TRY(state.running, read_running(disk, dir));
  if (!state.exit && state.running) {
    FF_TRY(const std::string boot, boot_id(disk));
    const bool lives = state.running->boot == boot && is_alive(disk, state.running->shim);
    state.phase = lives ? ShimPhase::running : ShimPhase::lost;
    // It may have written the record just before it exited.
    if (!lives) {
      FF_TRY(state.exit, read_exit(disk, dir));
    }
  }
  if (state.exit) state.phase = ShimPhase::exited;
  return state;
}

Result<void> send_order(io::Disk& disk, const std::string& dir, ShimOrder order) {
  const std::string path = io::join(dir, order_file(order));
  FF_TRY(const bool given, io::exists(disk, path));
  if (given) return {};
  return io::replace_file(disk, path, "", "new");  // renamed into place: inotify wakes the shim
}

Result<ExitRecord> kill_lost_rank(io::Disk& disk, Clock& clock, const std::string& dir) {
  FF_TRY(ShimState state, read_state(disk, dir));
  if (state.exit) return *state.exit;
  if (state.phase != ShimPhase::lost) {
    return fail(Errc::refused, "{}: its shim is not lost", dir);
  }
  // Excludes a concurrent call, and a shim that is just starting.
  FF_TRY(const auto lock, io::lock_file(disk, io::join(dir, kLockFile)));
  if (lock == nullptr) return fail(Errc::refused, "{}: its shim is not lost", dir);
  FF_TRY(const auto written, read_exit(disk, dir));
  if (written) return *written;
  const RunningRecord& running = *state.running;
  FF_TRY(const std::string boot, boot_id(disk));
  ExitRecord exit{.kind = ExitKind::lost, .why = "the machine was rebooted"};
  if (running.boot == boot) {
    exit.why = "its shim was killed";
    FF_TRY(exit.killed, kill_survivors(disk, clock, running));
    Cgroup cgroup(disk, running.cgroup_kind, running.cgroup);
    exit.peak_memory = cgroup.peak_memory();
    exit.peak_of_cgroup = exit.peak_memory.has_value();
    exit.oom_killed = cgroup.oom_killed();
    (void)cgroup.remove();
  }
  exit.ended_ns = exit.gone_ns = clock.wall_ns();
  FF_TRY(io::replace_file(disk, io::join(dir, kExitFile), to_json(exit), "new"));
  return exit;
}

}  // namespace ff::shim
