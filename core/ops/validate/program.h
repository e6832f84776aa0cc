// Another program that a check asks (journalctl, the helper for GPUs), with a deadline: one that
// hangs is killed, and what it had said is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff::validate {

struct Said {
  std::string output = {};  // its standard output, cut at `most` bytes
  int status = 0;           // as of waitpid(2); of no meaning when it hung
  bool hung = false;        // it was killed at the deadline
  bool ended_well() const;  // by itself, with exit code 0
};

// Reads what is there from a pipe that does not wait, and keeps what makes `into` at most `most`
// bytes. False: its other end is closed.
bool hear(int from, std::string& into, size_t most);

// `program`: a path, or a name that is looked for in PATH. Its standard error goes to nobody.
// Errors: not_found, refused, that it could not be started.
Result<Said> run_program(const std::string& program, const std::vector<std::string>& arguments,
                         Clock& clock, int64_t within_ns, size_t most);

}  // namespace ff::validate
