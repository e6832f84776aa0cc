// A program that this one has started and looks after: what it prints, and how it ends. The kernel
// kills it when the thread that has started it ends, however that comes about: nothing is left
// behind by a supervisor that was killed.
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
  std::string program;  // its file
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value", all of them
};

class Process {
 public:
  // In the loop's thread. It leads a session of its own: a terminal's Ctrl-C does not reach it.
  // A file that cannot be run shows as an exit with 127 and a line that says why.
  static Result<std::unique_ptr<Process>> start(Loop& loop, const ProcessOptions& options);
  ~Process();  // kills it, when run() has not seen its end
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Until it has ended: what waitpid(2) says. What it prints, on either stream, goes to `heard`.
  Task<Result<int>> run(std::function<void(std::string_view)> heard);

 private:
  Process(Loop& loop, pid_t pid) : loop_(loop), pid_(pid) {}
  // What is there to be read; false: the end of it.
  bool read(const std::function<void(std::string_view)>& heard);
  Task<void> read_on(const std::function<void(std::string_view)>& heard);

  Loop& loop_;
  pid_t pid_;
  bool ended_ = false;
  Fd output_, end_;  // a pipe's end; a descriptor that is readable when the process has ended
  std::unique_ptr<FdWatch> output_watch_, end_watch_;
};

// "exit 1", "killed by signal 9 (Killed)"
std::string how_it_ended(int status);

}  // namespace ff
