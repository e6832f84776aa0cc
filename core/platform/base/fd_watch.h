// Readiness notifications of a non-blocking file descriptor. Created by Loop::watch().
#pragma once

#include "platform/base/loop.h"
#include "platform/base/wait.h"

namespace ff {

// Watches one descriptor, edge-triggered. Destroy it before closing the descriptor. After a read
// returned EAGAIN, reset `readable` and wait for it; after a write returned EAGAIN, call
// arm_writable() and wait for `writable`.
class FdWatch {
 public:
  explicit FdWatch(Loop& loop) : readable(loop), writable(loop) {}
  virtual ~FdWatch() = default;

  // Resets `writable` and enables its notification. It is off by default: a socket becomes writable
  // each time its peer reads, and each event would wake the loop.
  virtual void arm_writable() = 0;

  // The peer has closed its side, or the descriptor has failed. No later event reports the end.
  bool hung_up = false;

  Event readable;  // also set on hang-up and error; the next read returns which one
  Event writable;
};

}  // namespace ff
