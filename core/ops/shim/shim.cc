// shim.cc: one loop around poll(2) for output, signals and orders.
#include "ops/shim/shim.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ops/shim/cgroup.h"
#include "ops/shim/json_reader.h"
#include "ops/shim/launch.h"
#include "ops/shim/orders.h"
#include "ops/shim/process_table.h"
#include "ops/shim/rank_lease.h"
#include "ops/shim/rank_log.h"
#include "ops/shim/records.h"
#include "ops/shim/spawn.h"
#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/io/files.h"

namespace ff::shim {
namespace {

constexpr size_t kReadBytes = 64 * kKiB;  // the capacity of a pipe
constexpr int kReadsPerTurn = 64;         // between two checks of orders
constexpr int kRounds = 20;               // over all processes, per turn
constexpr int64_t kKillPauseMaxNs = kSecond;
constexpr int64_t kCgroupRemoveNs = kSecond;  // after the exit of the last process
constexpr int64_t kLeaseRetryNs = kSecond;    // while the lease file is unreadable
constexpr int64_t kExitRetryNs = kSecond;     // when `exit` cannot be written
constexpr int64_t kExitTimeoutNs =
    600 * kSecond;  // then the shim gives up, and the rank counts as lost

class Shim {
 public:
  Shim(io::Disk& disk, Clock& clock, const std::string& dir)
      : disk_(disk), clock_(clock), dir_(dir) {}

  Result<void> run();

 private:
  std::string file(const char* name) const { return io::join(dir_, name); }

  Result<void> lock_dir();
  void detach();
  Result<void> start();
  Result<void> write_running(const RankProcess& rank, const ProcessId& shim);

  bool is_finished() const { return rank_ended_ && childless_; }
  int64_t until_ns() const;
  void wait();
  void read_output();
  void read_signals();
  void reap();
  void check_lease();
  void execute_orders();
  void signal_all(int number);
  void kill_all();

  ExitRecord collect_exit();
  Result<void> write_exit(const ExitRecord& exit);

  io::Disk& disk_;
  Clock& clock_;
  const std::string dir_;
  std::unique_ptr<io::File> lock_;
  Fd signals_, output_;
  LaunchSpec launch_;
  std::optional<OrderQueue> orders_;
  std::optional<RankLog> log_;
  std::optional<Cgroup> cgroup_;
  ProcessId rank_;
  std::string boot_;
  std::optional<int64_t> lease_until_ns_;  // last known value
  int64_t lease_check_ns_ = 0;

  bool rank_ended_ = false, childless_ = false;
  bool notified_ = false, terminated_ = false, killing_ = false;
  std::optional<int64_t> grace_until_ns_;  // set when the first process has exited before others
  int status_ = 0;
  int64_t ended_ns_ = 0;
  uint64_t largest_ = 0;  // peak RSS of one process, bytes
  std::set<ProcessId> killed_;
  int64_t kill_pause_ns_ = kKillPauseNs;
};

// Start. ------------------------------------------------------------------------------------------

Result<void> Shim::lock_dir() {
  FF_TRY(lock_, io::lock_file(disk_, file(kLockFile)));
  if (lock_ == nullptr) {
    Error error = fail(Errc::refused, "{}: another shim uses this folder", dir_);
    error.hint = "Each rank of each attempt needs its own folder.";
    return error;
  }
  for (const char* const name : {kRunningFile, kExitFile}) {
    FF_TRY(const bool had_one, io::exists(disk_, file(name)));
    if (!had_one) continue;
    Error error = fail(Errc::refused, "{}: a shim has used this folder before", dir_);
    error.hint = "A rank cannot run twice: start a new attempt.";
    return error;
  }
  return {};
}

// Detaches this process, so that only the end of its rank, or SIGKILL, ends it.
void Shim::detach() {
  ::setsid();
  ::umask(077);
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Under memory pressure the kernel should kill the rank, not the shim. Not every user may set
  // this.
  if (auto score = disk_.open("/proc/self/oom_score_adj", {.access = io::AccessMode::write})) {
    (void)(*score)->write_at(as_bytes("-500"), 0);
  }
  ::signal(SIGCHLD, SIG_DFL);  // if ignored, wait4(2) would not report children
  sigset_t all, handled;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::sigemptyset(&handled);
  ::sigaddset(&handled, SIGCHLD);
  ::sigaddset(&handled, SIGTERM);
  signals_ = Fd(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
}

Result<void> Shim::start() {
  if (signals_.get() < 0) return fail(Errc::failed, "no descriptor for signals");
  FF_TRY(const std::string text, io::read_file(disk_, file(kLaunchFile), kFileBytesMax));
  FF_TRY(launch_, parse_launch(text));
  orders_.emplace(disk_, dir_);
  if (orders_->has(ShimOrder::terminate) || orders_->has(ShimOrder::kill)) {
    return fail(Errc::interrupted, "it was stopped before it started");
  }
  log_.emplace(disk_, clock_, launch_.log);
  const auto self = find_process(disk_, ::getpid());
  if (!self) return fail(Errc::failed, "/proc does not show this process");
  cgroup_ = Cgroup::make(disk_, {.parent = launch_.cgroup,
                                 .name = fmt::format("rank-{}-{}", self->id.pid, self->id.start),
                                 .memory_limit = launch_.memory_limit});
  if (launch_.memory_limit > 0 && cgroup_->kind() == CgroupKind::none) {
    log_->write_own_line("ff: the memory of this rank is not limited: " + cgroup_->why());
  }
  FF_TRY(RankProcess rank, RankProcess::create(launch_));
  if (auto added = cgroup_->add(rank.pid()); !added) {
    if (launch_.memory_limit > 0) return added;
    cgroup_->remove();
    cgroup_ = Cgroup::none(disk_, added.error().message);
  }
  FF_TRY(write_running(rank, self->id));
  output_ = rank.take_output();
  rank.start();
  return {};
}

// Written before the rank executes its program: if the shim is killed in between, nothing has run.
Result<void> Shim::write_running(const RankProcess& rank, const ProcessId& shim) {
  const auto found = find_process(disk_, rank.pid());
  if (!found) return fail(Errc::failed, "/proc does not show the rank's process");
  rank_ = found->id;
  RunningRecord running{.shim = shim,
                        .rank = rank_,
                        .cgroup_kind = cgroup_->kind(),
                        .cgroup = cgroup_->path(),
                        .no_cgroup = cgroup_->why(),
                        .marker = launch_.marker,
                        .began_ns = clock_.wall_ns()};
  FF_TRY(boot_, boot_id(disk_));
  running.boot = boot_;
  return io::replace_file(disk_, file(kRunningFile), to_json(running), "new");
}

// The loop. ---------------------------------------------------------------------------------------

int64_t Shim::until_ns() const {
  int64_t until = INT64_MAX;
  const int64_t now_ns = clock_.steady_ns();
  if (const auto log = log_->next_ns()) until = *log;
  if (orders_->fd() < 0) until = std::min(until, now_ns + kOrderPollNs);
  if (!launch_.lease.empty()) until = std::min(until, lease_check_ns_);
  if (killing_) {
    until = std::min(until, now_ns + kill_pause_ns_);
  } else if (grace_until_ns_) {
    until = std::min(until, *grace_until_ns_);
  }
  return until;
}

void Shim::wait() {
  std::array<pollfd, 3> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{orders_->fd(), POLLIN, 0},
                               pollfd{output_.get(), POLLIN, 0}};  // poll(2) ignores -1
  const int64_t until = until_ns();
  timespec span = {};
  if (until != INT64_MAX) {
    const int64_t left_ns = std::max<int64_t>(0, until - clock_.steady_ns());
    span = {left_ns / kSecond, left_ns % kSecond};
  }
  (void)::ppoll(fds.data(), fds.size(), until == INT64_MAX ? nullptr : &span, nullptr);
}

void Shim::read_output() {
  static std::array<char, kReadBytes> bytes;
  for (int i = 0; i < kReadsPerTurn && output_.get() >= 0; i++) {
    const ssize_t got = ::read(output_.get(), bytes.data(), bytes.size());
    if (got > 0) log_->write({bytes.data(), static_cast<size_t>(got)});
    if (got < 0 && errno == EAGAIN) return;
    if (got == 0 || (got < 0 && errno != EINTR)) output_ = Fd();  // no writer is left
  }
}

void Shim::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGTERM) orders_->add(ShimOrder::terminate);
  }
}

void Shim::reap() {
  for (;;) {
    int status = 0;
    rusage usage = {};
    const pid_t pid = ::wait4(-1, &status, WNOHANG | __WALL, &usage);
    childless_ = pid < 0 && errno == ECHILD;
    if (pid <= 0) return;
    // In KiB; includes descendants that it has reaped itself.
    largest_ = std::max(largest_, static_cast<uint64_t>(usage.ru_maxrss) * kKiB);
    if (pid != rank_.pid || rank_ended_) continue;
    rank_ended_ = true;
    status_ = status;
    ended_ns_ = clock_.wall_ns();
  }
}

// Reads the lease file when the lease should expire; usually it was renewed by then.
void Shim::check_lease() {
  const int64_t now_ns = clock_.steady_ns();
  if (launch_.lease.empty() || now_ns < lease_check_ns_) return;
  const auto lease = read_lease(disk_, launch_.lease, boot_);
  const auto known = std::exchange(lease_until_ns_, lease ? lease->until_ns() : lease_until_ns_);
  lease_check_ns_ = now_ns + kLeaseRetryNs;
  if (lease && lease->until_ns() > now_ns) lease_check_ns_ = lease->until_ns();
  // An unreadable file may be half written: it is read once more.
  const bool is_over =
      lease ? lease->until_ns() <= now_ns : known && *known + kLeaseRetryNs < now_ns;
  if (!is_over || rank_ended_ || orders_->has(ShimOrder::kill)) return;
  log_->write_own_line(
      "ff: the lease has expired without contact to the scheduler: this rank is killed");
  orders_->add(ShimOrder::abandon);
  orders_->add(ShimOrder::kill);
}

void Shim::execute_orders() {
  if (orders_->has(ShimOrder::notify) && !notified_ && !rank_ended_) {
    // It was not reaped, so its pid is not reused.
    if (launch_.stop_signal > 0) (void)::kill(rank_.pid, launch_.stop_signal);
    notified_ = true;
  }
  if (orders_->has(ShimOrder::terminate) && !std::exchange(terminated_, true)) signal_all(SIGTERM);
  if (rank_ended_ && !childless_ && !grace_until_ns_) {
    grace_until_ns_ = clock_.steady_ns() + kGraceNs;
    signal_all(SIGTERM);
  }
  if (orders_->has(ShimOrder::kill)) killing_ = true;
  if (grace_until_ns_ && clock_.steady_ns() >= *grace_until_ns_) killing_ = true;
  if (killing_) kill_all();
}

// Processes that are forked meanwhile are signalled, too, unless they fork faster than /proc is
// read.
void Shim::signal_all(int number) {
  std::set<ProcessId> signalled;
  for (int round = 0; round < kRounds; round++) {
    const auto all = all_processes(disk_);
    if (!all) return;
    const size_t before = signalled.size();
    for (const ProcessInfo& one : descendants(*all, {::getpid()})) {
      if (one.is_zombie || !signalled.insert(one.id).second) continue;
      (void)send_signal(disk_, one.id, number);
      (void)send_signal(disk_, one.id, SIGCONT);  // a stopped process would not handle it
    }
    if (signalled.size() == before) return;
  }
}

// A process that hangs in the kernel ends when the kernel releases it.
void Shim::kill_all() {
  kill_pause_ns_ = std::min(2 * kill_pause_ns_, kKillPauseMaxNs);
  for (int round = 0; round < kRounds; round++) {
    const auto all = all_processes(disk_);
    if (!all) return;
    bool any = false;
    for (const ProcessInfo& one : descendants(*all, {::getpid()})) {
      if (one.is_zombie) continue;
      any = true;
      if (one.id != rank_) killed_.insert(one.id);
      (void)send_signal(disk_, one.id, SIGKILL);
    }
    (void)cgroup_->kill_all();
    reap();
    if (!any || childless_) return;
  }
}

// The end. ----------------------------------------------------------------------------------------

ExitRecord Shim::collect_exit() {
  // A process that still holds the other end does not belong to the rank: do not wait for it.
  for (int i = 0; i < kRounds && output_.get() >= 0; i++) {
    pollfd more{output_.get(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    read_output();
  }
  log_->finish();
  if (!killed_.empty() && !orders_->has(ShimOrder::kill)) {
    log_->write_own_line(
        fmt::format("ff: killed {} processes that the rank had left behind", killed_.size()));
  }
  ExitRecord exit{.kind = ExitKind::exited,
                  .status = status_,
                  .ended_ns = ended_ns_,
                  .gone_ns = clock_.wall_ns(),
                  .killed = killed_.size(),
                  .peak_memory = cgroup_->peak_memory(),
                  .oom_killed = cgroup_->oom_killed(),
                  .log_dropped = log_->dropped()};
  // A rank that exited with 0 was done.
  exit.abandoned = status_ != 0 && orders_->has(ShimOrder::abandon);
  if (exit.abandoned) exit.why = "its node killed it";
  exit.peak_of_cgroup = exit.peak_memory.has_value();
  if (!exit.peak_memory && largest_ > 0) exit.peak_memory = largest_;
  const int64_t end_ns = clock_.steady_ns() + kCgroupRemoveNs;
  while (!cgroup_->remove() && clock_.steady_ns() < end_ns) clock_.sleep_ns(kKillPauseNs);
  return exit;
}

Result<void> Shim::write_exit(const ExitRecord& exit) {
  const int64_t end_ns = clock_.steady_ns() + kExitTimeoutNs;
  for (;;) {
    auto written = io::replace_file(disk_, file(kExitFile), to_json(exit), "new");
    // The operator may free space on the disk, or remove the folder.
    if (written || written.error().code == Errc::not_found) return written;
    if (clock_.steady_ns() >= end_ns) return written;
    clock_.sleep_ns(kExitRetryNs);
  }
}

Result<void> Shim::run() {
  FF_TRY(lock_dir());
  detach();
  if (auto started = start(); !started) {
    if (cgroup_) cgroup_->remove();
    const int64_t now_ns = clock_.wall_ns();
    FF_TRY(write_exit({.kind = ExitKind::not_started,
                       .why = started.error().message,
                       .abandoned = orders_ && orders_->has(ShimOrder::abandon),
                       .ended_ns = now_ns,
                       .gone_ns = now_ns}));
    return started;
  }
  while (!is_finished()) {
    wait();
    read_output();
    log_->tick();
    read_signals();
    reap();
    orders_->poll();
    check_lease();
    execute_orders();
  }
  return write_exit(collect_exit());
}

}  // namespace

Result<void> run_shim(io::Disk& disk, Clock& clock, const std::string& dir) {
  return Shim(disk, clock, dir).run();
}

}  // namespace ff::shim
