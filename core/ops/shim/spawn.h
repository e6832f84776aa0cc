// Creates processes with fork(2) and execve(2): a rank, which switches to another user, and a shim,
// which is detached from its parent. Between fork and exec nothing is allocated or locked: another
// thread of the agent may hold the lock at the time of the fork.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "ops/shim/launch.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::shim {

// The first process of a rank; it waits until start() is called.
class RankProcess {
 public:
  // The process leads a new session; its standard input is /dev/null, and its output goes to
  // `take_output()`. The marker of the launch spec is added to its environment.
  static Result<RankProcess> create(const LaunchSpec& launch);
  ~RankProcess();  // kills and reaps a process that was never started
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // The process sets its user and working directory and executes the program. On failure it prints
  // one line and exits with 126 (not executable) or 127 (any other error).
  void start();
  // The read end of its output; non-blocking.
  Fd take_output() { return std::move(output_); }

 private:
  RankProcess(pid_t pid, Fd output, Fd start_pipe)
      : pid_(pid), output_(std::move(output)), start_pipe_(std::move(start_pipe)) {}

  pid_t pid_;
  Fd output_, start_pipe_;
  bool started_ = false;
};

// Runs a program in a new session, reparented to init or a subreaper, without environment variables
// and open descriptors, in "/". Returns once it runs; argv[0] is a path.
Result<void> spawn_detached(const std::vector<std::string>& argv);

// PATH where an environment has none.
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// The files that the program name may denote, in the order of PATH in `env`.
std::vector<std::string> path_candidates(const std::string& program,
                                         const std::vector<std::string>& env);

}  // namespace ff::shim
