// Decides whether the workers of a mount take part in the work (fuse_worker.h). One loop answers
// the requests of a single program fastest, since no other thread has to be woken.
#pragma once

#include <cstddef>

namespace ff::mount {

class SpreadLoad {
 public:
  // A program that waits for the reply has sent the owner a request; with it, `awaited` are under
  // way. `alone`: it is small, and no other request is under way. `for_workers`: a worker may
  // answer such a request. Returns whether on() has changed.
  bool on_request(size_t awaited, bool alone, bool for_workers) {
    const bool before = on_;
    alone_in_row_ = alone ? alone_in_row_ + 1 : 0;
    others_in_row_ = for_workers ? 0 : others_in_row_ + 1;
    if (for_workers && awaited >= kSpreadAt) on_ = true;
    if (alone_in_row_ >= kGatherAfter || others_in_row_ >= kGatherAfter) on_ = false;
    return on_ != before;
  }
  bool on() const { return on_; }

 private:
  static constexpr size_t kSpreadAt = 3;
  static constexpr size_t kGatherAfter = 256;

  bool on_ = false;
  size_t alone_in_row_ = 0;
  size_t others_in_row_ = 0;  // that are not for workers
};

}  // namespace ff::mount
