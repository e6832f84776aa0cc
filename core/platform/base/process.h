// A child process: its output and its exit status. The kernel kills the child when the thread that
// started it ends for any reason (PR_SET_PDEATHSIG), so that a killed supervisor leaves no children
// behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/fd_watch.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff {

struct ProcessOptions {
  std::string program;  // path of the executable
  std::vector<std::string> argv;
  std::vector<std::string> env;  // the whole environment, as "NAME=value"
};

class Process {
 public:
  // Call it on the loop's thread. The child gets its own session, so that Ctrl-C in the terminal
  // does not reach it. If the program cannot be executed, the child prints why and exits with 127.
  static Result<std::unique_ptr<Process>> start(Loop& loop, const ProcessOptions& options);
  ~Process();  // kills the child if run() has not seen its exit
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Waits until the child exits and returns its wait status (waitpid(2)). Passes the output of both
  // streams to `on_output`.
  Task<Result<int>> run(std::function<void(std::string_view)> on_output);

 private:
  Process(Loop& loop, pid_t pid) : loop_(loop), pid_(pid) {}
  // Reads the available output; false at the end of the stream.
  bool read(const std::function<void(std::string_view)>& on_output);
  Task<void> read_output(const std::function<void(std::string_view)>& on_output);

  Loop& loop_;
  pid_t pid_;
  bool ended_ = false;
  Fd output_, pidfd_;  // the read end of the output pipe; the pidfd, readable after the exit
  std::unique_ptr<FdWatch> output_watch_, exit_watch_;
};

// "exit 1", "killed by signal 9 (Killed)"
std::string describe_exit(int status);

}  // namespace ff
