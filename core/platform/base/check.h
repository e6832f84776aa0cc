// Bugs crash. FF_CHECK states what must hold whatever the input; it stays on in release builds.
// Weather (I/O, peers, users) never reaches it: that returns an Error (result.h).
#pragma once

namespace ff {

// Prints "FILE:LINE: check failed: TEXT" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* text);

}  // namespace ff

#define FF_CHECK(condition) \
  ((condition) ? void(0) : ::ff::check_failed(__FILE__, __LINE__, #condition))
