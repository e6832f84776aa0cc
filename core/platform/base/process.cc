// process.cc: starts a child process, reads its output and reaps it.
#include "platform/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/fork.h"
#include "platform/base/gate.h"

namespace ff {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Runs in the child between fork and exec, so it must not allocate or lock.
[[noreturn]] void become(const char* program, char* const* argv, char* const* env, int output,
                         int input, pid_t parent) {
  ::setsid();
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl() took effect.
  if (::getppid() != parent) ::_exit(1);
  ::execve(program, argv, env);
  const char* const why = ::strerrordesc_np(errno);
  (void)!::write(STDERR_FILENO, program, std::strlen(program));
  (void)!::write(STDERR_FILENO, ": ", 2);
  (void)!::write(STDERR_FILENO, why, std::strlen(why));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(127);
}

}  // namespace

Result<std::unique_ptr<Process>> Process::start(Loop& loop, const ProcessOptions& options) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, options.program);
  Fd output(ends[0]);
  const Fd input(ends[1]);
  std::array<int, 2> nothing = {};  // for standard input: an empty pipe at its end
  if (::pipe2(nothing.data(), O_CLOEXEC) != 0) return errno_error(errno, options.program);
  const Fd ended(nothing[0]);
  ::close(nothing[1]);
  if (::fcntl(output.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, options.program);
  const auto argv = pointers(options.argv);
  const auto env = pointers(options.env);
  const pid_t parent = ::getpid();
  const pid_t pid = fork_for_exec();
  if (pid == 0) {
    become(options.program.c_str(), argv.data(), env.data(), input.get(), ended.get(), parent);
  }
  if (pid < 0) return errno_error(errno, options.program + ": cannot be started");
  std::unique_ptr<Process> process(new Process(loop, pid));
  process->output_ = std::move(output);
  process->pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process->pidfd_.get() < 0) return errno_error(errno, options.program + ": pidfd_open");
  FF_TRY(process->output_watch_, loop.watch(process->output_.get()));
  FF_TRY(process->exit_watch_, loop.watch(process->pidfd_.get()));
  return process;
}

Process::~Process() {
  if (ended_) return;
  signal(SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
}

void Process::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

bool Process::read(const std::function<void(std::string_view)>& on_output) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t got = ::read(output_.get(), bytes.data(), bytes.size());
    if (got > 0) on_output({bytes.data(), static_cast<size_t>(got)});
    if (got == 0) return false;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

Task<void> Process::read_output(const std::function<void(std::string_view)>& on_output) {
  for (;;) {
    output_watch_->readable.reset();
    if (!read(on_output)) co_return;
    const auto waited = co_await output_watch_->readable.wait();
    if (!waited) co_return;
  }
}

Task<Result<int>> Process::run(std::function<void(std::string_view)> on_output) {
  Gate reading(loop_);
  reading.spawn(read_output(on_output));
  int status = 0;
  Result<void> waited;
  while (waited && !ended_) {
    exit_watch_->readable.reset();
    ended_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
    if (!ended_) waited = co_await exit_watch_->readable.wait();
  }
  Error over = fail(Errc::interrupted, "the process has ended");
  co_await reading.close(std::move(over));
  if (!waited) co_return waited.error();
  read(on_output);  // what it printed before it exited
  co_return status;
}

std::string describe_exit(int status) {
  if (WIFEXITED(status)) return fmt::format("exit {}", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  const char* const name = ::sigdescr_np(number);
  return fmt::format("killed by signal {} ({})", number, name == nullptr ? "unknown" : name);
}

}  // namespace ff
