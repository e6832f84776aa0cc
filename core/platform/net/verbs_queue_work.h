// The insides of a queue (verbs_queue.h) that its units share: how its work requests are numbered,
// and its two small parts.
#pragma once

#include <cstdint>

#include "platform/net/verbs_queue.h"

namespace ff::net {

// What a completion is of, in its wr_id.
struct Work {
  enum class Kind : uint16_t { receive, send, empty_send, bulk } kind = Kind::receive;
  uint16_t index = 0;  // of the buffer or slot

  uint64_t id() const { return uint64_t{static_cast<uint16_t>(kind)} << 16 | index; }
  static Work of(uint64_t id) {
    return {static_cast<Kind>(id >> 16 & 0xffff), static_cast<uint16_t>(id & 0xffff)};
  }
};

// Returns credits at the end of a turn, unless a message has taken them along.
class VerbsQueue::CreditReturn final : public Ready {
 public:
  explicit CreditReturn(VerbsQueue& queue) : queue_(queue) {}
  void fire() override { queue_.return_credits(); }

 private:
  VerbsQueue& queue_;
};

// One push or pull. Its memory is the device's until it is idle.
class VerbsQueue::Transfer {
 public:
  explicit Transfer(VerbsQueue& queue) : queue_(queue), idle_(queue.device_.loop()) { idle_.set(); }
  // A task destroyed in the middle takes the queue pair with it: the memory may go next.
  ~Transfer() {
    if (pending_ == 0) return;
    queue_.lose(fail(Errc::interrupted, "a push or pull was dropped in the middle"));
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
  VerbsQueue& queue_;
  size_t pending_ = 0;
  bool broken_ = false;
  Event idle_;
};

}  // namespace ff::net
