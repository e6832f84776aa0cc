// shim.cc: one loop around poll(2), with the rank's output, signals and orders.
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

#include "ops/shim/become.h"
#include "ops/shim/cgroup.h"
#include "ops/shim/fields.h"
#include "ops/shim/launch.h"
#include "ops/shim/lease.h"
#include "ops/shim/orders.h"
#include "ops/shim/process_table.h"
#include "ops/shim/rank_log.h"
#include "ops/shim/records.h"
#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/io/files.h"

namespace ff::shim {
namespace {

constexpr size_t kReadBytes = 64 * kKiB;  // a pipe holds no more
constexpr int kReadsATurn = 64;           // between two looks at orders
constexpr int kRounds = 20;               // over all processes, in one turn
constexpr int64_t kKillPauseMaxNs = kSecond;
constexpr int64_t kRemovePatienceNs = kSecond;  // for a cgroup whose last process has just ended
constexpr int64_t kLeaseLookNs = kSecond;       // while the lease's file cannot be read
constexpr int64_t kExitPauseNs = kSecond;       // when `exit` cannot be written
constexpr int64_t kExitPatienceNs = 600 * kSecond;  // and no longer: the rank is then lost

class Shim {
 public:
  Shim(io::Disk& disk, Clock& clock, const std::string& dir)
      : disk_(disk), clock_(clock), dir_(dir) {}

  Result<void> run();

 private:
  std::string file(const char* name) const { return io::join(dir_, name); }

  Result<void> take_folder();
  void settle();
  Result<void> start();
  Result<void> write_running(const NewRank& rank, const ProcessId& shim);

  bool over() const { return rank_ended_ && childless_; }
  int64_t until_ns() const;
  void wait();
  void read_output();
  void take_signals();
  void reap();
  void look_at_lease();
  void act();
  void signal_all(int number);
  void kill_all();

  Exit ended();
  Result<void> write_exit(const Exit& exit);

  io::Disk& disk_;
  Clock& clock_;
  const std::string dir_;
  std::unique_ptr<io::File> lock_;
  Fd signals_, output_;
  Launch launch_;
  std::optional<Orders> orders_;
  std::optional<RankLog> log_;
  std::optional<Cgroup> cgroup_;
  ProcessId rank_;
  std::string boot_;
  std::optional<int64_t> lease_until_ns_;  // as far as it was ever known
  int64_t lease_look_ns_ = 0;

  bool rank_ended_ = false, childless_ = false;
  bool notified_ = false, terminated_ = false, killing_ = false;
  std::optional<int64_t> grace_until_ns_;  // the first process has ended, and others have not
  int status_ = 0;
  int64_t ended_ns_ = 0;
  uint64_t largest_ = 0;  // bytes, of one process
  std::set<ProcessId> killed_;
  int64_t kill_pause_ns_ = kKillPauseNs;
};

// Beginning. --------------------------------------------------------------------------------------

Result<void> Shim::take_folder() {
  FF_TRY(lock_, io::lock_file(disk_, file(kLockFile)));
  if (lock_ == nullptr) {
    Error error = fail(Errc::refused, "{}: another shim holds this folder", dir_);
    error.hint = "Each rank of each attempt needs a folder of its own.";
    return error;
  }
  for (const char* const name : {kRunningFile, kExitFile}) {
    FF_TRY(const bool had_one, io::exists(disk_, file(name)));
    if (!had_one) continue;
    Error error = fail(Errc::refused, "{}: a shim has had this folder before", dir_);
    error.hint = "Nothing may run twice; start an attempt of its own.";
    return error;
  }
  return {};
}

// Makes this process one that nothing but its rank's end, or SIGKILL, ends.
void Shim::settle() {
  ::setsid();
  ::umask(077);
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The rank is what should make room when there is no memory left. Not every user may say so.
  if (auto score = disk_.open("/proc/self/oom_score_adj", {.access = io::Access::write})) {
    (void)(*score)->write_at(as_bytes("-500"), 0);
  }
  ::signal(SIGCHLD, SIG_DFL);  // ignored, children would go without a word
  sigset_t all, heard;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::sigemptyset(&heard);
  ::sigaddset(&heard, SIGCHLD);
  ::sigaddset(&heard, SIGTERM);
  signals_ = Fd(::signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC));
}

Result<void> Shim::start() {
  if (signals_.get() < 0) return fail(Errc::failed, "no descriptor for signals");
  FF_TRY(const std::string text, io::read_file(disk_, file(kLaunchFile), kFileMax));
  FF_TRY(launch_, parse_launch(text));
  orders_.emplace(disk_, dir_);
  if (orders_->has(Order::terminate) || orders_->has(Order::kill)) {
    return fail(Errc::interrupted, "it was to end before it had begun");
  }
  log_.emplace(disk_, clock_, launch_.log);
  const auto self = find_process(disk_, ::getpid());
  if (!self) return fail(Errc::failed, "/proc does not show this process");
  cgroup_ = Cgroup::make(disk_, {.parent = launch_.cgroup,
                                 .name = fmt::format("rank-{}-{}", self->id.pid, self->id.start),
                                 .memory_limit = launch_.memory_limit});
  if (launch_.memory_limit > 0 && cgroup_->kind() == CgroupKind::none) {
    log_->say("ff: nothing limits this rank's memory: " + cgroup_->why());
  }
  FF_TRY(NewRank rank, NewRank::make(launch_));
  if (auto added = cgroup_->add(rank.pid()); !added) {
    if (launch_.memory_limit > 0) return added;
    cgroup_->remove();
    cgroup_ = Cgroup::none(disk_, added.error().message);
  }
  FF_TRY(write_running(rank, self->id));
  output_ = rank.take_output();
  rank.let_go();
  return {};
}

// Before the rank's program begins: were this process killed in between, nothing would have run.
Result<void> Shim::write_running(const NewRank& rank, const ProcessId& shim) {
  const auto found = find_process(disk_, rank.pid());
  if (!found) return fail(Errc::failed, "/proc does not show the rank's process");
  rank_ = found->id;
  Running running{.shim = shim,
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

// Meanwhile. --------------------------------------------------------------------------------------

int64_t Shim::until_ns() const {
  int64_t until = INT64_MAX;
  const int64_t now_ns = clock_.steady_ns();
  if (const auto log = log_->next_ns()) until = *log;
  if (orders_->fd() < 0) until = std::min(until, now_ns + kLookNs);
  if (!launch_.lease.empty()) until = std::min(until, lease_look_ns_);
  if (killing_) {
    until = std::min(until, now_ns + kill_pause_ns_);
  } else if (grace_until_ns_) {
    until = std::min(until, *grace_until_ns_);
  }
  return until;
}

void Shim::wait() {
  std::array<pollfd, 3> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{orders_->fd(), POLLIN, 0},
                               pollfd{output_.get(), POLLIN, 0}};  // -1 is left out
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
  for (int i = 0; i < kReadsATurn && output_.get() >= 0; i++) {
    const ssize_t got = ::read(output_.get(), bytes.data(), bytes.size());
    if (got > 0) log_->hear({bytes.data(), static_cast<size_t>(got)});
    if (got < 0 && errno == EAGAIN) return;
    if (got == 0 || (got < 0 && errno != EINTR)) output_ = Fd();  // nobody writes any more
  }
}

void Shim::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGTERM) orders_->give(Order::terminate);
  }
}

void Shim::reap() {
  for (;;) {
    int status = 0;
    rusage usage = {};
    const pid_t pid = ::wait4(-1, &status, WNOHANG | __WALL, &usage);
    childless_ = pid < 0 && errno == ECHILD;
    if (pid <= 0) return;
    // In KiB, and of those that it has reaped itself, too.
    largest_ = std::max(largest_, static_cast<uint64_t>(usage.ru_maxrss) * kKiB);
    if (pid != rank_.pid || rank_ended_) continue;
    rank_ended_ = true;
    status_ = status;
    ended_ns_ = clock_.wall_ns();
  }
}

// When it should be over: by then it goes on longer, most often.
void Shim::look_at_lease() {
  const int64_t now_ns = clock_.steady_ns();
  if (launch_.lease.empty() || now_ns < lease_look_ns_) return;
  const auto lease = read_lease(disk_, launch_.lease, boot_);
  const auto known = std::exchange(lease_until_ns_, lease ? lease->until_ns() : lease_until_ns_);
  lease_look_ns_ = now_ns + kLeaseLookNs;
  if (lease && lease->until_ns() > now_ns) lease_look_ns_ = lease->until_ns();
  // What cannot be read may be half written: it is looked at once more.
  const bool is_over =
      lease ? lease->until_ns() <= now_ns : known && *known + kLeaseLookNs < now_ns;
  if (!is_over || rank_ended_ || orders_->has(Order::kill)) return;
  log_->say("ff: the scheduler was silent for too long, so this is killed");
  orders_->give(Order::give_up);
  orders_->give(Order::kill);
}

void Shim::act() {
  if (orders_->has(Order::notify) && !notified_ && !rank_ended_) {
    // It was not reaped, so its number is its own.
    if (launch_.stop_signal > 0) (void)::kill(rank_.pid, launch_.stop_signal);
    notified_ = true;
  }
  if (orders_->has(Order::terminate) && !std::exchange(terminated_, true)) signal_all(SIGTERM);
  if (rank_ended_ && !childless_ && !grace_until_ns_) {
    grace_until_ns_ = clock_.steady_ns() + kGraceNs;
    signal_all(SIGTERM);
  }
  if (orders_->has(Order::kill)) killing_ = true;
  if (grace_until_ns_ && clock_.steady_ns() >= *grace_until_ns_) killing_ = true;
  if (killing_) kill_all();
}

// Those that are made meanwhile get it, too, unless they come faster than all are looked at.
void Shim::signal_all(int number) {
  std::set<ProcessId> told;
  for (int round = 0; round < kRounds; round++) {
    const auto all = all_processes(disk_);
    if (!all) return;
    const size_t before = told.size();
    for (const ProcessInfo& one : descendants(*all, {::getpid()})) {
      if (one.ended || !told.insert(one.id).second) continue;
      (void)send_signal(disk_, one.id, number);
      (void)send_signal(disk_, one.id, SIGCONT);  // one that is stopped would not hear it
    }
    if (told.size() == before) return;
  }
}

// One that hangs in the kernel ends when the kernel lets go of it.
void Shim::kill_all() {
  kill_pause_ns_ = std::min(2 * kill_pause_ns_, kKillPauseMaxNs);
  for (int round = 0; round < kRounds; round++) {
    const auto all = all_processes(disk_);
    if (!all) return;
    bool any = false;
    for (const ProcessInfo& one : descendants(*all, {::getpid()})) {
      if (one.ended) continue;
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

Exit Shim::ended() {
  // Whatever still has the other end is none of the rank's processes: its end is not waited for.
  for (int i = 0; i < kRounds && output_.get() >= 0; i++) {
    pollfd more{output_.get(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    read_output();
  }
  log_->finish();
  if (!killed_.empty() && !orders_->has(Order::kill)) {
    log_->say(
        fmt::format("ff: {} processes that the rank had left behind were killed", killed_.size()));
  }
  Exit exit{.ending = Ending::ended,
            .status = status_,
            .ended_ns = ended_ns_,
            .gone_ns = clock_.wall_ns(),
            .killed = killed_.size(),
            .peak_memory = cgroup_->peak_memory(),
            .oom_killed = cgroup_->oom_killed(),
            .log_dropped = log_->dropped()};
  // What has ended well was done.
  exit.given_up = status_ != 0 && orders_->has(Order::give_up);
  if (exit.given_up) exit.why = "its node ended it";
  exit.peak_of_cgroup = exit.peak_memory.has_value();
  if (!exit.peak_memory && largest_ > 0) exit.peak_memory = largest_;
  const int64_t end_ns = clock_.steady_ns() + kRemovePatienceNs;
  while (!cgroup_->remove() && clock_.steady_ns() < end_ns) clock_.sleep_ns(kKillPauseNs);
  return exit;
}

Result<void> Shim::write_exit(const Exit& exit) {
  const int64_t end_ns = clock_.steady_ns() + kExitPatienceNs;
  for (;;) {
    auto written = io::replace_file(disk_, file(kExitFile), to_json(exit), "new");
    // Somebody may free space on the disk, or take the folder away.
    if (written || written.error().code == Errc::not_found) return written;
    if (clock_.steady_ns() >= end_ns) return written;
    clock_.sleep_ns(kExitPauseNs);
  }
}

Result<void> Shim::run() {
  FF_TRY(take_folder());
  settle();
  if (auto started = start(); !started) {
    if (cgroup_) cgroup_->remove();
    const int64_t now_ns = clock_.wall_ns();
    FF_TRY(write_exit({.ending = Ending::not_started,
                       .why = started.error().message,
                       .given_up = orders_ && orders_->has(Order::give_up),
                       .ended_ns = now_ns,
                       .gone_ns = now_ns}));
    return started;
  }
  while (!over()) {
    wait();
    read_output();
    log_->tick();
    take_signals();
    reap();
    orders_->look();
    look_at_lease();
    act();
  }
  return write_exit(ended());
}

}  // namespace

Result<void> run_shim(io::Disk& disk, Clock& clock, const std::string& dir) {
  return Shim(disk, clock, dir).run();
}

}  // namespace ff::shim
