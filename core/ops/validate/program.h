// Runs another program for a check (journalctl, the GPU helper) with a deadline: a program that
// hangs is killed, and its output so far is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::validate {

struct ProgramOutput {
  std::string output = {};  // standard output, truncated to `most` bytes
  int status = 0;           // of waitpid(2); undefined when it hung
  bool hung = false;        // killed at the deadline
  bool ended_well() const;  // by itself, with exit code 0
};

// Reads the available bytes of a non-blocking pipe; `into` keeps at most `most` bytes. False: the
// other end is closed.
bool read_available(int from, std::string& into, size_t most);

// `program`: a path, or a name that is searched in PATH. Its standard error is discarded. Errors:
// not_found, refused, start failures.
Result<ProgramOutput> run_program(const std::string& program,
                                  const std::vector<std::string>& arguments, Clock& clock,
                                  int64_t within_ns, size_t most);

}  // namespace ff::validate
