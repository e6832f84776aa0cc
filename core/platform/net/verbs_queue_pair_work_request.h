// Private types of VerbsQueuePair shared by its source files: work request ids, deferred credit
// returns and bulk transfers.
#pragma once

#include <cstdint>

#include "platform/net/verbs_queue_pair.h"

namespace ff::net {

// Identifies the work request of a completion; stored in its wr_id.
struct WorkRequestId {
  enum class Kind : uint16_t { receive, send, empty_send, bulk } kind = Kind::receive;
  uint16_t index = 0;  // of the buffer or slot

  uint64_t id() const { return uint64_t{static_cast<uint16_t>(kind)} << 16 | index; }
  static WorkRequestId decode(uint64_t id) {
    return {static_cast<Kind>(id >> 16 & 0xffff), static_cast<uint16_t>(id & 0xffff)};
  }
};

// Returns credits at the end of a turn, unless another message has returned them.
class VerbsQueuePair::CreditReturn final : public Runnable {
 public:
  explicit CreditReturn(VerbsQueuePair& queue) : queue_(queue) {}
  void on_wake() override { queue_.return_credits(); }

 private:
  VerbsQueuePair& queue_;
};

// One push or pull. The device may access its memory until it is idle.
class VerbsQueuePair::Transfer {
 public:
  explicit Transfer(VerbsQueuePair& queue) : queue_(queue), idle_(queue.device_.loop()) {
    idle_.set();
  }
  // If the task is destroyed early, the queue pair is destroyed too: the memory may be freed next.
  ~Transfer() {
    if (pending_ == 0) return;
    queue_.set_failed(fail(Errc::interrupted, "a push or pull was abandoned"));
  }
  void begin() {
    pending_++;
    idle_.reset();
  }
  void end(bool well) {
    broken_ |= !well;
    if (--pending_ == 0) idle_.set();
  }
  bool broken() const { return broken_; }
  Task<void> wait_idle() { (void)co_await idle_.wait(); }

 private:
  VerbsQueuePair& queue_;
  size_t pending_ = 0;
  bool broken_ = false;
  Event idle_;
};

}  // namespace ff::net
