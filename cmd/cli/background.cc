// background.cc: detaches from the terminal, logs to a file, reports readiness over a pipe.
#include "cmd/cli/background.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "platform/base/fd.h"
#include "platform/base/log.h"
#include "platform/base/process.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

constexpr off_t kLogMax = 4 << 20;  // bytes
constexpr int kReadPollMs = 50;

Json error_json(const Error& error) {
  return {{"code", errc_name(error.code)}, {"message", error.message}, {"hint", error.hint}};
}

Error to_error(const Json& json) {
  Error error;
  error.code = errc_from_name(json.value("code", "")).value_or(Errc::failed);
  error.message = json.value("message", "");
  error.hint = json.value("hint", "");
  return error;
}

void report_to_parent(Fd& pipe, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  (void)!::write(pipe.get(), text.data(), text.size());  // an error means that the parent has died
  pipe = Fd();
}

// Body of the new process.
[[noreturn]] void run_child(pid_t parent, Fd pipe,
                            const std::function<Result<void>(const ReportReady&)>& serve) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have died before prctl(2).
  if (::getppid() != parent) ::_exit(1);
  detach_from_terminal();
  bool ready = false;
  const auto result = serve([&](const Json& where) {
    ready = true;
    ::prctl(PR_SET_PDEATHSIG, 0);
    (void)!::chdir("/");
    report_to_parent(pipe, {{"serves", where}});
  });
  if (!result && !ready) report_to_parent(pipe, {{"error", error_json(result.error())}});
  if (!result && ready) log_error("has failed", {{"cause", result.error().message}});
  ::_exit(result ? 0 : 1);
}

// Reads until the other end is closed.
Result<std::string> read_report(const StopToken& stop, int pipe) {
  std::string text;
  for (;;) {
    pollfd waits{pipe, POLLIN, 0};
    (void)::poll(&waits, 1, kReadPollMs);
    FF_TRY(stop.check());
    if (waits.revents == 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(bytes.data(), static_cast<size_t>(got));
  }
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

}  // namespace

void detach_from_terminal() {
  ::setsid();
  const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(nothing.get(), stream);
  }
}

Result<void> BackgroundLog::open(std::string path) {
  path_ = std::move(path);
  struct stat info = {};
  if (::stat(path_.c_str(), &info) == 0 && info.st_size > kLogMax) {
    (void)::rename(path_.c_str(), (path_ + ".1").c_str());
  }
  const Fd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.get() < 0 || ::dup2(file.get(), STDERR_FILENO) < 0) return errno_error(errno, path_);
  return {};
}

void BackgroundLog::rotate_if_needed() {
  struct stat named = {}, open_now = {};
  if (path_.empty() || ::fstat(STDERR_FILENO, &open_now) != 0) return;
  const bool same = ::stat(path_.c_str(), &named) == 0 && named.st_ino == open_now.st_ino &&
                    named.st_dev == open_now.st_dev;
  if (same && named.st_size <= kLogMax) return;
  (void)open(path_);  // on an error the old file stays in use
}

Result<Json> start_in_background(const StopToken& stop,
                                 std::function<Result<void>(const ReportReady&)> serve) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) run_child(parent, std::move(write_end), serve);
  if (pid < 0) return errno_error(errno, "it cannot be left behind");
  write_end = Fd();
  auto report = read_report(stop, read_end.get());
  if (!report) {
    ::kill(pid, SIGTERM);
    wait_for(pid);
    return std::move(report).error();
  }
  const Json parsed = Json::parse(*report, nullptr, false);
  if (parsed.is_object() && parsed.contains("serves")) {
    Json where = parsed["serves"];
    where["pid"] = pid;
    return where;
  }
  const int status = wait_for(pid);
  if (parsed.is_object() && parsed.contains("error")) return to_error(parsed["error"]);
  return fail(Errc::failed, "it has ended before it served: {}", describe_exit(status));
}

}  // namespace ff::cmd
