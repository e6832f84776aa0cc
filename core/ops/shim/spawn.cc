// spawn.cc: the steps of a new process before it executes its program.
#include "ops/shim/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "platform/base/text.h"

namespace ff::shim {
namespace {

constexpr unsigned kDescriptorsMax = 1 << 16;  // where close_range(2) is missing
constexpr int kLowDescriptors = 10;
constexpr int kNotExecutableExit = 126, kNotFoundExit = 127;

// All data of the new process, prepared before fork(2).
struct SpawnPlan {
  std::vector<std::string> paths, env_texts;
  std::vector<char*> argv, env;
  std::vector<gid_t> groups;
  const LaunchSpec* launch = nullptr;
  int input = -1, output = -1, start_pipe = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// `env`, with the marker in place of a variable of the same name.
std::vector<std::string> with_marker(const LaunchSpec& launch) {
  std::vector<std::string> all = launch.env;
  if (launch.marker.empty()) return all;
  const std::string name = launch.marker.substr(0, launch.marker.find('=') + 1);
  std::erase_if(all, [&](const std::string& one) { return one.starts_with(name); });
  all.push_back(launch.marker);
  return all;
}

// In the new process: no allocation.
// ---------------------------------------------------------------

// If standard streams were closed, pipes may have their numbers: move them up.
int move_fd_up(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, kLowDescriptors); }

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (unsigned fd = first; fd < kDescriptorsMax; fd++) ::close(static_cast<int>(fd));
}

void reset_signals() {
  // A program inherits ignored and blocked signals.
  for (int number = 1; number < NSIG; number++) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void exit_with_error(const char* what, int err, int code = kNotFoundExit) {
  for (const char* const part : {"ff: ", what, ": ", ::strerrordesc_np(err), "\n"}) {
    if (part != nullptr) (void)!::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::_exit(code);
}

void reset_oom_score() {
  const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!::write(file, "0", 1);
  ::close(file);
}

// Setuid programs (sudo, fusermount3) still work, as for any user.
void drop_capabilities() {
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) exit_with_error("capabilities", errno);
}

void become_user(const SpawnPlan& plan) {
  const RankUser& user = *plan.launch->user;
  if (::setgroups(plan.groups.size(), plan.groups.data()) != 0) {
    exit_with_error("the user's groups", errno);
  }
  if (::setresgid(user.gid, user.gid, user.gid) != 0) exit_with_error("the user's group", errno);
  if (::setresuid(user.uid, user.uid, user.uid) != 0) exit_with_error("the user", errno);
  drop_capabilities();
  ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);  // not the agent's keys
}

[[noreturn]] void exec_first_found(const SpawnPlan& plan) {
  int err = ENOENT;
  for (const std::string& path : plan.paths) {
    ::execve(path.c_str(), plan.argv.data(), plan.env.data());
    // EACCES takes precedence over ENOENT, as in execvp(3).
    if (errno == ENOENT || errno == ENOTDIR) continue;
    err = errno;
    if (err != EACCES) break;
  }
  const bool found = err == EACCES || err == ENOEXEC || err == EPERM;
  exit_with_error(plan.argv[0], err, found ? kNotExecutableExit : kNotFoundExit);
}

[[noreturn]] void run_rank_child(const SpawnPlan& plan) {
  ::setsid();
  char go = 0;
  // On EOF the shim has died, and nobody would record the exit.
  while (::read(plan.start_pipe, &go, 1) < 0 && errno == EINTR) continue;
  if (go == 0) ::_exit(kNotFoundExit);
  const int output = move_fd_up(plan.output);
  ::dup2(move_fd_up(plan.input), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  close_from(STDERR_FILENO + 1);
  reset_signals();
  reset_oom_score();
  if (plan.launch->user) become_user(plan);
  ::umask(022);
  const char* const folder = plan.launch->cwd.c_str();
  if (::chdir(folder) != 0) exit_with_error(folder, errno);
  exec_first_found(plan);
}

// The first steps of a shim, after a double fork. Errors go to `error_pipe`.
[[noreturn]] void run_shim_child(char* const* argv, int error_pipe, int dev_null) {
  ::setsid();
  const pid_t pid = ::fork();
  if (pid > 0) ::_exit(0);
  int err = errno;
  if (pid == 0) {
    error_pipe = move_fd_up(error_pipe);
    dev_null = move_fd_up(dev_null);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(dev_null, stream);
    constexpr int kErrorPipe = STDERR_FILENO + 1;
    ::dup3(error_pipe, kErrorPipe, O_CLOEXEC);
    error_pipe = kErrorPipe;
    close_from(kErrorPipe + 1);
    reset_signals();
    (void)!::chdir("/");
    char* const env[] = {nullptr};
    ::execve(argv[0], argv, env);
    err = errno;
  }
  (void)!::write(error_pipe, &err, sizeof err);
  ::_exit(1);
}

struct Pipe {
  Fd from, to;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Result<Fd> open_dev_null() {
  Fd dev_null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (dev_null.get() < 0) return errno_error(errno, "/dev/null");
  return dev_null;
}

}  // namespace

std::vector<std::string> path_candidates(const std::string& program,
                                         const std::vector<std::string>& env) {
  if (program.find('/') != program.npos) return {program};
  std::string_view path = kDefaultPath;
  for (const std::string& one : env) {
    if (one.starts_with("PATH=")) path = std::string_view(one).substr(5);
  }
  std::vector<std::string> all;
  for (const std::string_view folder : split(path, ':')) {
    all.push_back(fmt::format("{}/{}", folder.empty() ? "." : folder, program));
  }
  return all;
}

Result<RankProcess> RankProcess::create(const LaunchSpec& launch) {
  FF_TRY(Pipe output, make_pipe());
  FF_TRY(Pipe start_pipe, make_pipe());
  FF_TRY(const Fd dev_null, open_dev_null());
  if (::fcntl(output.from.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, "pipe");
  // Otherwise the rank could not open /dev/stdout.
  if (launch.user && ::fchown(output.to.get(), launch.user->uid, launch.user->gid) != 0) {
    return errno_error(errno, "the rank's output cannot be given to its user");
  }
  SpawnPlan plan;
  plan.launch = &launch;
  plan.paths = path_candidates(launch.argv[0], launch.env);
  plan.env_texts = with_marker(launch);
  plan.argv = pointers(launch.argv);
  plan.env = pointers(plan.env_texts);
  if (launch.user) plan.groups.assign(launch.user->groups.begin(), launch.user->groups.end());
  plan.input = dev_null.get();
  plan.output = output.to.get();
  plan.start_pipe = start_pipe.from.get();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(start_pipe.to.get());  // its own copy would hide the EOF when the shim dies
    run_rank_child(plan);
  }
  if (pid < 0) return errno_error(errno, "the rank's process cannot be made");
  return RankProcess(pid, std::move(output.from), std::move(start_pipe.to));
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      output_(std::move(other.output_)),
      start_pipe_(std::move(other.start_pipe_)),
      started_(other.started_) {}

RankProcess::~RankProcess() {
  if (pid_ == 0 || started_) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
}

void RankProcess::start() {
  started_ = true;
  // The pipe is empty, so the write neither blocks nor fails; if the process was killed meanwhile,
  // wait4(2) tells.
  (void)!::write(start_pipe_.get(), "g", 1);
  start_pipe_ = Fd();
}

Result<void> spawn_detached(const std::vector<std::string>& argv) {
  FF_TRY(Pipe error_pipe, make_pipe());
  FF_TRY(const Fd dev_null, open_dev_null());
  const auto words = pointers(argv);
  const pid_t pid = ::fork();
  if (pid == 0) run_shim_child(words.data(), error_pipe.to.get(), dev_null.get());
  if (pid < 0) return errno_error(errno, argv[0] + ": cannot be started");
  error_pipe.to = Fd();
  // A thread that reaps all children may have been faster.
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  int err = 0;
  ssize_t got = 0;
  do {
    got = ::read(error_pipe.from.get(), &err, sizeof err);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof err) return errno_error(err, argv[0]);
  return {};
}

}  // namespace ff::shim
