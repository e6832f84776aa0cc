// FF_CHECK aborts the process when an invariant is violated, which is always a bug in ff; it is
// active in release builds too. Failures of I/O, peers or user input return an Error (result.h).
#pragma once

namespace ff {

// Prints "FILE:LINE: check failed: TEXT" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* text);

}  // namespace ff

#define FF_CHECK(condition) \
  ((condition) ? void(0) : ::ff::check_failed(__FILE__, __LINE__, #condition))
