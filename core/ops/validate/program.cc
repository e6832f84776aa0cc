// program.cc: one child process, its output and its exit.
#include "ops/validate/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace ff::validate {

namespace {

constexpr int kProgramPollMs = 50;
constexpr int kEndMs = 1;  // poll interval between EOF and exit

// File actions of posix_spawnp(3): standard output to a pipe, the rest to /dev/null.
class Streams {
 public:
  explicit Streams(int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  ~Streams() { ::posix_spawn_file_actions_destroy(&actions_); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

}  // namespace

bool read_available(int from, std::string& into, size_t most) {
  std::array<char, 65'536> bytes;
  for (;;) {
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    into.append(bytes.data(), std::min(static_cast<size_t>(got), most - into.size()));
  }
}

bool ProgramOutput::ended_well() const {
  return !hung && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result<ProgramOutput> run_program(const std::string& program,
                                  const std::vector<std::string>& arguments, Clock& clock,
                                  int64_t within_ns, size_t most) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const Streams streams(ends[1]);
  const int failed =
      ::posix_spawnp(&pid, program.c_str(), streams.get(), nullptr, argv.data(), ::environ);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return errno_error(failed, program);
  }
  ProgramOutput result;
  const int64_t end_ns = clock.steady_ns() + within_ns;
  while (read_available(ends[0], result.output, most)) {
    if (clock.steady_ns() > end_ns) {
      result.hung = true;
      break;
    }
    pollfd wait{ends[0], POLLIN, 0};
    (void)::poll(&wait, 1, kProgramPollMs);
  }
  ::close(ends[0]);
  // After EOF it may still hang in a driver.
  while (!result.hung && ::waitpid(pid, &result.status, WNOHANG) == 0) {
    result.hung = clock.steady_ns() > end_ns;
    (void)::poll(nullptr, 0, kEndMs);
  }
  // A process that hangs in the kernel cannot be killed; do not wait for it.
  if (result.hung) ::kill(pid, SIGKILL);
  if (result.hung) (void)::waitpid(pid, &result.status, WNOHANG);
  return result;
}

}  // namespace ff::validate
