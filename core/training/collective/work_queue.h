// The work queue of a host: arithmetic on pieces of operations between hosts. Local rank 0, which
// exchanges data with other hosts, pushes items into memory that all ranks of the host have mapped;
// any thread of any rank claims one. An item either reduces inputs of this host's ranks and partial
// sums of other hosts, or stores the result in outputs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "platform/simd/wire.h"
#include "training/collective/collective_request.h"
#include "training/collective/piece.h"
#include "training/collective/route.h"

namespace ff::collective {

// Addresses are in regions of local rank 0.
struct WorkItem {
  uint64_t number = 0;  // of the operation
  Piece piece = {};
  simd::WireType wire =
      simd::WireType::none;  // format of partial sums, and of results that go down
  bool reduces = false;      // inputs of this host and `partials`; else it stores `result`
  bool is_root = false;      // the sum is complete and goes to the outputs
  bool broadcasts = false;   // the result goes to other hosts, or came from one
  uint32_t ranks = 1;        // of the job
  uint32_t partial_count = 0;
  std::array<SharedAddress, kChildrenMax> partials = {};
  SharedAddress send = {};    // where the data for other hosts is written; region 0: none
  SharedAddress result = {};  // received from the root
};

constexpr uint32_t kWorkItemsMax = 64;  // from the oldest unfinished one

class WorkQueue {
 public:
  struct Memory;
  static size_t bytes();
  // `memory` is zeroed at first.
  explicit WorkQueue(void* memory);

  // Whether the item kWorkItemsMax before the next one is finished: one thread may be slow while
  // others finish many.
  bool has_room() const;
  // By one thread only, if has_room(). Returns the item's ticket.
  uint64_t push(const WorkItem& item);
  bool is_finished(uint64_t ticket) const;

  // By any thread.
  uint64_t waiting() const;  // items that no thread has claimed
  struct Claimed {
    uint64_t ticket = 0;
    WorkItem item = {};
  };
  // Sets `current` to the operation's number + 1 before it claims the item, so that a thread that
  // stops in between is known; back to 0 when there is no item.
  std::optional<Claimed> claim(std::atomic<uint64_t>& current);
  void finish(uint64_t ticket);
  // Items since the queue was made.
  uint64_t finished() const;

 private:
  Memory* memory_;
};

}  // namespace ff::collective
