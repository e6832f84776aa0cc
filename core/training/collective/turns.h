// What there is to do of an operation between nodes on this one, as it comes up: the rank that
// speaks with other nodes publishes it, in memory that all ranks of the host have mapped, and any
// thread of any rank takes it. Each such turn is of one piece: its own inputs are summed with what
// other nodes sent, or what came out is written into its outputs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "platform/simd/wire.h"
#include "training/collective/plan.h"
#include "training/collective/request.h"
#include "training/collective/route.h"

namespace ff::collective {

// Shared memory of the rank that speaks with other nodes, local rank 0.
struct Turn {
  uint64_t number = 0;  // of the operation
  Piece piece = {};
  simd::Wire wire = simd::Wire::none;  // how partial sums, and sums that go down, are written
  bool sums = false;                   // inputs of this node's ranks and `partials`; else `result`
  bool is_last = false;                // the sum is whole: it goes into outputs
  bool goes_down = false;              // and to other nodes, or came from there
  uint32_t ranks = 1;                  // of the job
  uint32_t partial_count = 0;
  std::array<Place, kBelowMax> partials = {};
  Place send = {};    // where what goes to other nodes is left; region 0: nowhere
  Place result = {};  // what came from the root
};

constexpr uint32_t kTurns = 64;  // published and not done, at most

class Turns {
 public:
  struct Memory;
  static size_t bytes();
  // In zeros at first.
  explicit Turns(void* memory);

  // By one thread only: at most kTurns that are not done. Gives its ticket.
  uint64_t publish(const Turn& turn);
  bool done(uint64_t ticket) const;

  // By anyone.
  uint64_t waiting() const;  // that nobody has taken
  struct Taken {
    uint64_t ticket = 0;
    Turn turn = {};
  };
  // `works` says number + 1 of the operation before the turn is taken: of whoever stops in between,
  // it is known. Back at 0 where there is none.
  std::optional<Taken> take(std::atomic<uint64_t>& works);
  void finish(uint64_t ticket);
  // How many, ever.
  uint64_t finished() const;

 private:
  Memory* memory_;
};

}  // namespace ff::collective
