// The means of the tests beside (child.h), and that they tell exits and outputs apart.
#include "e2e/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>

#include "platform/base/check.h"
#include "platform/base/clock.h"

namespace ff::test {
namespace {

// How long a child may be silent: only a hang takes so long, also on a busy machine.
constexpr std::chrono::seconds kPatience{200};

// A pair of ends: [0] to read, [1] for the child.
std::array<int, 2> channel(bool terminal) {
  std::array<int, 2> ends{};
  if (!terminal) {
    FF_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0);
    return ends;
  }
  ends[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  FF_CHECK(ends[0] >= 0 && ::grantpt(ends[0]) == 0 && ::unlockpt(ends[0]) == 0);
  ends[1] = ::open(::ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
  FF_CHECK(ends[1] >= 0);
  return ends;
}

// Appends what is there; false at the end (a terminal whose other side closed reads as EIO).
bool drain(int fd, std::string& into) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  into.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

[[noreturn]] void become(const Launch& launch, int in, int out, int err) {
  if (launch.terminal) {
    ::setsid();
    ::ioctl(in, TIOCSCTTY, 0);
  }
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::map<std::string, std::string> variables = launch.env;
  // Most tests start daemons without keys.
  variables.insert({{"PATH", ::getenv("PATH")},
                    {"TERM", "xterm"},
                    {"HOME", "/proc/nonexistent"},
                    {"FF_INSECURE", "1"}});
  std::vector<std::string> settings;
  for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
  std::vector<char*> argv, env;
  for (const std::string& word : launch.argv) argv.push_back(const_cast<char*>(word.c_str()));
  for (std::string& setting : settings) env.push_back(setting.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);
  const std::string& program = launch.program.empty() ? launch.argv[0] : launch.program;
  ::execvpe(program.c_str(), argv.data(), env.data());
  ::_exit(127);
}

}  // namespace

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "ff-cli-XXXXXX").string();
  FF_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

bool eventually(const std::function<bool()>& condition) {
  SystemClock clock;
  const int64_t end_ns = clock.steady_ns() + std::chrono::nanoseconds(kPatience).count();
  while (!condition()) {
    if (clock.steady_ns() > end_ns) return false;
    clock.sleep_ns(20 * kMillisecond);
  }
  return true;
}

std::set<pid_t> processes(const std::string& text) {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string line = read_file(entry.path() / "cmdline");
    if (line.find(text) != line.npos) found.insert(std::stoi(name));
  }
  return found;
}

Child::Child(const Launch& launch) {
  if (launch.terminal) {
    const std::array<int, 2> ends = channel(true);
    out_fd_ = ends[0];
    in_fd_ = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    pid_ = ::fork();
    FF_CHECK(pid_ >= 0);
    if (pid_ == 0) become(launch, ends[1], ends[1], ends[1]);
    ::close(ends[1]);
    return;
  }
  std::array<int, 2> input{-1, -1};
  if (launch.stdin_open) {
    input = channel(false);
    std::swap(in_fd_, input[1]);
  } else {
    input[0] = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  std::array<int, 2> output{-1, -1};
  if (launch.stdout_path.empty()) {
    output = channel(launch.stdout_terminal);
  } else {
    output[1] = ::open(launch.stdout_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  }
  const std::array<int, 2> errors = channel(launch.stderr_terminal);
  // Tests read it late, or never: a daemon that logs must not wait for them.
  if (!launch.stderr_terminal) (void)::fcntl(errors[0], F_SETPIPE_SZ, 1 << 20);
  out_fd_ = output[0];
  err_fd_ = errors[0];
  pid_ = ::fork();
  FF_CHECK(pid_ >= 0);
  if (pid_ == 0) become(launch, input[0], output[1], errors[1]);
  ::close(input[0]);
  ::close(output[1]);
  ::close(errors[1]);
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_fd(in_fd_);
  close_fd(out_fd_);
  close_fd(err_fd_);
}

void Child::read_some(int timeout_ms) {
  std::array<pollfd, 2> polled{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  ::poll(polled.data(), polled.size(), timeout_ms);
  if (polled[0].revents != 0 && !drain(out_fd_, out)) close_fd(out_fd_);
  if (polled[1].revents != 0 && !drain(err_fd_, err)) close_fd(err_fd_);
}

bool Child::wait_for(int fd, std::string& into, const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (into.find(text) == std::string::npos) {
    const bool open = fd == out_fd_ || fd == err_fd_;
    if (!open || std::chrono::steady_clock::now() > deadline) return false;
    read_some(100);
  }
  return true;
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);  // -1 would be everybody
}

void Child::write_stdin(const std::string& text) const {
  FF_CHECK(::write(in_fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

void Child::close_stdin() { close_fd(in_fd_); }
void Child::close_stdout() { close_fd(out_fd_); }

int Child::finish() {
  close_stdin();
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  while ((out_fd_ >= 0 || err_fd_ >= 0) && std::chrono::steady_clock::now() < deadline) {
    const size_t before = out.size() + err.size();
    read_some(100);
    if (out.size() + err.size() > before) deadline = std::chrono::steady_clock::now() + kPatience;
  }
  if (out_fd_ >= 0 || err_fd_ >= 0) {
    ADD_FAILURE() << "silent for " << kPatience.count() << " s; killed";
    ::kill(pid_, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

ProcessResult run(const Launch& launch) {
  Child child(launch);
  ProcessResult ran;
  ran.exit = child.finish();
  ran.out = child.out;
  ran.err = child.err;
  return ran;
}

ProcessResult probe(std::vector<std::string> words, std::map<std::string, std::string> env) {
  words.insert(words.begin(), "ff");
  return run({.argv = std::move(words), .env = std::move(env), .program = FF_PROBE});
}

ProcessResult run_ff(std::vector<std::string> words, std::map<std::string, std::string> env) {
  words.insert(words.begin(), "ff");
  return run({.argv = std::move(words), .env = std::move(env), .program = FF_BINARY});
}

namespace {

TEST(Child, tells_exits_and_outputs_apart) {
  const ProcessResult ran = run({.argv = {"sh", "-c", "echo out; echo err >&2; exit 7"}});
  EXPECT_EQ(ran.exit, 7);
  EXPECT_EQ(ran.out, "out\n");
  EXPECT_EQ(ran.err, "err\n");
  EXPECT_EQ(run({.argv = {"sh", "-c", "kill -TERM $$"}}).exit, 128 + SIGTERM);
}

}  // namespace
}  // namespace ff::test
