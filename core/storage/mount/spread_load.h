// Decides whether the workers of a mount take part in the work (fuse_worker.h). One loop answers
// the requests of a single program fastest, since no other thread has to be woken.
#pragma once

#include <cstddef>

namespace ff::mount {

class SpreadLoad {
 public:
  // A program that waits for the reply has sent a request; with it, `awaited` are under way.
  // `alone`: it is small, and no other request is under way. Returns whether on() has changed.
  bool on_request(size_t awaited, bool alone) {
    const bool before = on_;
    in_row_ = alone ? in_row_ + 1 : 0;
    if (awaited >= kSpreadAt) on_ = true;
    if (in_row_ >= kGatherAfter) on_ = false;
    return on_ != before;
  }
  bool on() const { return on_; }

 private:
  static constexpr size_t kSpreadAt = 3;
  // Requests in a row that came alone.
  static constexpr size_t kGatherAfter = 256;

  bool on_ = false;
  size_t in_row_ = 0;
};

}  // namespace ff::mount
