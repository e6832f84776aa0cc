// When a non-blocking descriptor can go on. Made by Loop::watch().
#pragma once

#include "platform/base/loop.h"
#include "platform/base/wait.h"

namespace ff {

// The readiness of one descriptor; destroying it ends the watch (before the descriptor is closed).
// Edge-triggered. After EAGAIN of a read reset `readable`, then wait for it; after EAGAIN of a
// write call wants_writable(), then wait for `writable`.
class FdWatch {
 public:
  explicit FdWatch(Loop& loop) : readable(loop), writable(loop) {}
  virtual ~FdWatch() = default;

  // Resets `writable`, and has it told. It is not before: a socket could be written to again
  // whenever its peer has read something, and each time would wake the loop.
  virtual void wants_writable() = 0;

  Event readable;  // or closed by the other side, or in error: the next call tells
  Event writable;
};

}  // namespace ff
