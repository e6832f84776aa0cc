// When a non-blocking descriptor can go on. Made by Loop::watch().
#pragma once

#include "base/loop.h"
#include "base/wait.h"

namespace ff {

// The readiness of one descriptor; destroying it ends the watch (before the descriptor is closed).
// Edge-triggered: after EAGAIN reset the event, then wait for it.
class FdWatch {
 public:
  explicit FdWatch(Loop& loop) : readable(loop), writable(loop) {}
  virtual ~FdWatch() = default;

  Event readable;  // or closed by the other side, or in error: the next call tells
  Event writable;
};

}  // namespace ff
