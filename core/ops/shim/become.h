// New processes, from fork(2) to execve(2): a rank, who becomes another user, and a shim, who
// becomes nobody's child. Nothing is allocated or locked in between, since another thread of the
// agent may hold a lock that the new process would wait for for ever.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "ops/shim/launch.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::shim {

// A rank's first process, which waits to be let go.
class NewRank {
 public:
  // It leads a session of its own; its standard input is /dev/null, and what it writes comes out
  // of `output()`. Launch's marker is put into its environment.
  static Result<NewRank> make(const Launch& launch);
  ~NewRank();  // it ends, and is reaped, when it was never let go
  NewRank(NewRank&& other) noexcept;
  NewRank& operator=(NewRank&&) = delete;

  pid_t pid() const { return pid_; }
  // It takes its user, its folder and its program. What of these cannot be had it writes in one
  // line, and ends with 126 (it may not be run, or is no program) or 127 (anything else).
  void let_go();
  // Does not wait.
  Fd take_output() { return std::move(output_); }

 private:
  NewRank(pid_t pid, Fd output, Fd go)
      : pid_(pid), output_(std::move(output)), go_(std::move(go)) {}

  pid_t pid_;
  Fd output_, go_;
  bool gone_ = false;
};

// Runs a program in a session of its own whose parent is init, or whoever takes orphans here, with
// no variables, no descriptors and "/" as its folder. Returns once it runs; argv[0] is a path.
Result<void> leave_alone(const std::vector<std::string>& argv);

// The files that a program of this name may be, in the order of `env`'s PATH.
std::vector<std::string> candidates(const std::string& program,
                                    const std::vector<std::string>& env);

}  // namespace ff::shim
