// become.cc: what a process does to itself before it is another program.
#include "ops/shim/become.h"

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

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
constexpr unsigned kManyDescriptors = 1 << 16;  // where the kernel cannot close a range
constexpr int kLowDescriptors = 10;
constexpr int kNotAProgram = 126, kNotFound = 127;

// All that the new process needs, laid out before it is made.
struct Becoming {
  std::vector<std::string> paths, env_texts;
  std::vector<char*> argv, env;
  std::vector<gid_t> groups;
  const Launch* launch = nullptr;
  int input = -1, output = -1, go = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Those of `env`, and the marker in the place of one of its name.
std::vector<std::string> with_marker(const Launch& launch) {
  std::vector<std::string> all = launch.env;
  if (launch.marker.empty()) return all;
  const std::string name = launch.marker.substr(0, launch.marker.find('=') + 1);
  std::erase_if(all, [&](const std::string& one) { return one.starts_with(name); });
  all.push_back(launch.marker);
  return all;
}

// In the new process from here on. ----------------------------------------------------------------

// Pipes have the numbers of the standard streams where a program was started without these.
int out_of_the_way(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, kLowDescriptors); }

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (unsigned fd = first; fd < kManyDescriptors; fd++) ::close(static_cast<int>(fd));
}

void forget_signals() {
  // A program inherits what is ignored and what is blocked.
  for (int number = 1; number < NSIG; number++) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void give_up(const char* what, int err, int code = kNotFound) {
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

// Programs that give rights of their own (sudo, fusermount3) still do, as they do for any user.
void drop_capabilities() {
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) give_up("capabilities", errno);
}

void take_user(const Becoming& becoming) {
  const User& user = *becoming.launch->user;
  if (::setgroups(becoming.groups.size(), becoming.groups.data()) != 0) {
    give_up("the user's groups", errno);
  }
  if (::setresgid(user.gid, user.gid, user.gid) != 0) give_up("the user's group", errno);
  if (::setresuid(user.uid, user.uid, user.uid) != 0) give_up("the user", errno);
  drop_capabilities();
  ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);  // not the agent's keys
}

[[noreturn]] void run_first_that_is(const Becoming& becoming) {
  int err = ENOENT;
  for (const std::string& path : becoming.paths) {
    ::execve(path.c_str(), becoming.argv.data(), becoming.env.data());
    // A file that may not be run is more than one that is not there, as in execvp(3).
    if (errno == ENOENT || errno == ENOTDIR) continue;
    err = errno;
    if (err != EACCES) break;
  }
  const bool found = err == EACCES || err == ENOEXEC || err == EPERM;
  give_up(becoming.argv[0], err, found ? kNotAProgram : kNotFound);
}

[[noreturn]] void become_rank(const Becoming& becoming) {
  ::setsid();
  char go = 0;
  // Without a word its shim has ended, and nobody would know of it.
  while (::read(becoming.go, &go, 1) < 0 && errno == EINTR) continue;
  if (go == 0) ::_exit(kNotFound);
  const int output = out_of_the_way(becoming.output);
  ::dup2(out_of_the_way(becoming.input), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  close_from(STDERR_FILENO + 1);
  forget_signals();
  reset_oom_score();
  if (becoming.launch->user) take_user(becoming);
  ::umask(022);
  const char* const folder = becoming.launch->cwd.c_str();
  if (::chdir(folder) != 0) give_up(folder, errno);
  run_first_that_is(becoming);
}

// A shim's first steps, twice removed from the agent. What fails goes into `tells`.
[[noreturn]] void become_shim(char* const* argv, int tells, int nothing) {
  ::setsid();
  const pid_t pid = ::fork();
  if (pid > 0) ::_exit(0);
  int err = errno;
  if (pid == 0) {
    tells = out_of_the_way(tells);
    nothing = out_of_the_way(nothing);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, stream);
    constexpr int kTells = STDERR_FILENO + 1;
    ::dup3(tells, kTells, O_CLOEXEC);
    tells = kTells;
    close_from(kTells + 1);
    forget_signals();
    (void)!::chdir("/");
    char* const env[] = {nullptr};
    ::execve(argv[0], argv, env);
    err = errno;
  }
  (void)!::write(tells, &err, sizeof err);
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

Result<Fd> open_nothing() {
  Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (nothing.get() < 0) return errno_error(errno, "/dev/null");
  return nothing;
}

}  // namespace

std::vector<std::string> candidates(const std::string& program,
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

Result<NewRank> NewRank::make(const Launch& launch) {
  FF_TRY(Pipe output, make_pipe());
  FF_TRY(Pipe go, make_pipe());
  FF_TRY(const Fd nothing, open_nothing());
  if (::fcntl(output.from.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, "pipe");
  // Or it could not open /dev/stdout.
  if (launch.user && ::fchown(output.to.get(), launch.user->uid, launch.user->gid) != 0) {
    return errno_error(errno, "the rank's output cannot be given to its user");
  }
  Becoming becoming;
  becoming.launch = &launch;
  becoming.paths = candidates(launch.argv[0], launch.env);
  becoming.env_texts = with_marker(launch);
  becoming.argv = pointers(launch.argv);
  becoming.env = pointers(becoming.env_texts);
  if (launch.user) becoming.groups.assign(launch.user->groups.begin(), launch.user->groups.end());
  becoming.input = nothing.get();
  becoming.output = output.to.get();
  becoming.go = go.from.get();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(go.to.get());  // its own copy would keep it waiting when the shim dies
    become_rank(becoming);
  }
  if (pid < 0) return errno_error(errno, "the rank's process cannot be made");
  return NewRank(pid, std::move(output.from), std::move(go.to));
}

NewRank::NewRank(NewRank&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      output_(std::move(other.output_)),
      go_(std::move(other.go_)),
      gone_(other.gone_) {}

NewRank::~NewRank() {
  if (pid_ == 0 || gone_) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
}

void NewRank::let_go() {
  gone_ = true;
  // The pipe is empty, so this neither waits nor fails; were it killed meanwhile, that shows.
  (void)!::write(go_.get(), "g", 1);
  go_ = Fd();
}

Result<void> leave_alone(const std::vector<std::string>& argv) {
  FF_TRY(Pipe told, make_pipe());
  FF_TRY(const Fd nothing, open_nothing());
  const auto words = pointers(argv);
  const pid_t pid = ::fork();
  if (pid == 0) become_shim(words.data(), told.to.get(), nothing.get());
  if (pid < 0) return errno_error(errno, argv[0] + ": cannot be started");
  told.to = Fd();
  // Whoever reaps all children of this process may have been faster.
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  int err = 0;
  ssize_t got = 0;
  do {
    got = ::read(told.from.get(), &err, sizeof err);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof err) return errno_error(err, argv[0]);
  return {};
}

}  // namespace ff::shim
