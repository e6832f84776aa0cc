// Background processes (daemon(7)): they continue after the command has returned, have no terminal,
// log to a file, and report over a pipe when they are ready.
#pragma once

#include <functional>
#include <string>

#include "cmd/cli/output.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::cmd {

// Starts a new session (setsid(2)), so that Ctrl-C of the terminal does not reach the process, and
// redirects the standard streams to /dev/null.
void detach_from_terminal();

// Appends standard error to a file. A full file is renamed to PATH.1 and replaced by a new one.
class BackgroundLog {
 public:
  // `path` is absolute. Errors name it.
  Result<void> open(std::string path);
  // To be called regularly: opens a new file if the old one is full or was renamed (logrotate).
  void rotate_if_needed();

 private:
  std::string path_;  // empty: not opened
};

// The background process calls it once, when it is ready.
using ReportReady = std::function<void(const Json& where)>;

// Runs `serve` in a background process and returns when that process is ready: the data that it
// reported, and its pid. If it ends before that, returns its error. Until it is ready, the process
// gets SIGTERM when `stop` ends or this process dies. The caller must have only one thread.
Result<Json> start_in_background(const StopToken& stop,
                                 std::function<Result<void>(const ReportReady&)> serve);

}  // namespace ff::cmd
