// Processes that stay behind when the command that was typed has returned: they have no terminal,
// log where nobody watches, and say over a pipe whether they serve.
#pragma once

#include <functional>
#include <string>

#include "cmd/cli/output.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::cmd {

// Leads a session of its own, which a terminal's Ctrl-C does not reach. Its standard streams lead
// nowhere from now on.
void leave_terminal();

// Standard error goes to the end of a file, which gives way to a new one when it is full (PATH.1).
class OwnLog {
 public:
  // An absolute path. Errors name it.
  Result<void> open(std::string path);
  // Now and then: a new file, when it is full or somebody has moved it away (logrotate).
  void look();

 private:
  std::string path_;  // empty: it was never opened
};

// What a process that stays behind calls once it serves.
using Serves = std::function<void(const Json& where)>;

// Runs `serve` in a new process without a terminal, and returns as soon as it serves: what it said
// then. When it ends before, its error. Until then it is told to stop with this one, and when this
// one dies. To be called while there is one thread only.
Result<Json> leave_behind(const StopToken& stop, std::function<Result<void>(const Serves&)> serve);

}  // namespace ff::cmd
