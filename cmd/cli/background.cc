// background.cc: out of the terminal, into a file, and one message to whoever waits.
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
constexpr int kLookMs = 50;

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

void tell_starter(Fd& pipe, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  (void)!::write(pipe.get(), text.data(), text.size());  // nobody there: nobody wants to know
  pipe = Fd();
}

// The new process.
[[noreturn]] void stay(pid_t parent, Fd pipe,
                       const std::function<Result<void>(const Serves&)>& serve) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have died before the kernel was asked to tell.
  if (::getppid() != parent) ::_exit(1);
  leave_terminal();
  bool serves = false;
  const auto result = serve([&](const Json& where) {
    serves = true;
    ::prctl(PR_SET_PDEATHSIG, 0);
    (void)!::chdir("/");
    tell_starter(pipe, {{"serves", where}});
  });
  if (!result && !serves) tell_starter(pipe, {{"error", error_json(result.error())}});
  if (!result && serves) log_error("has failed", {{"cause", result.error().message}});
  ::_exit(result ? 0 : 1);
}

// All that comes before the other end is closed.
Result<std::string> hear(const StopToken& stop, int pipe) {
  std::string text;
  for (;;) {
    pollfd waits{pipe, POLLIN, 0};
    (void)::poll(&waits, 1, kLookMs);
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

void leave_terminal() {
  ::setsid();
  const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(nothing.get(), stream);
  }
}

Result<void> OwnLog::open(std::string path) {
  path_ = std::move(path);
  struct stat info = {};
  if (::stat(path_.c_str(), &info) == 0 && info.st_size > kLogMax) {
    (void)::rename(path_.c_str(), (path_ + ".1").c_str());
  }
  const Fd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.get() < 0 || ::dup2(file.get(), STDERR_FILENO) < 0) return errno_error(errno, path_);
  return {};
}

void OwnLog::look() {
  struct stat named = {}, open_now = {};
  if (path_.empty() || ::fstat(STDERR_FILENO, &open_now) != 0) return;
  const bool same = ::stat(path_.c_str(), &named) == 0 && named.st_ino == open_now.st_ino &&
                    named.st_dev == open_now.st_dev;
  if (same && named.st_size <= kLogMax) return;
  (void)open(path_);  // what cannot be opened is not gone on with: the old one is
}

Result<Json> leave_behind(const StopToken& stop, std::function<Result<void>(const Serves&)> serve) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  const Fd hears(ends[0]);
  Fd tells(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) stay(parent, std::move(tells), serve);
  if (pid < 0) return errno_error(errno, "it cannot be left behind");
  tells = Fd();
  auto heard = hear(stop, hears.get());
  if (!heard) {
    ::kill(pid, SIGTERM);
    wait_for(pid);
    return std::move(heard).error();
  }
  const Json told = Json::parse(*heard, nullptr, false);
  if (told.is_object() && told.contains("serves")) {
    Json where = told["serves"];
    where["pid"] = pid;
    return where;
  }
  const int status = wait_for(pid);
  if (told.is_object() && told.contains("error")) return to_error(told["error"]);
  return fail(Errc::failed, "it has ended before it served: {}", describe_exit(status));
}

}  // namespace ff::cmd
