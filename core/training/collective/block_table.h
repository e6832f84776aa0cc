// The blocks of an all-to-all between one rank and the ranks of other hosts, in memory that all
// ranks of its host have mapped. Small ones travel in one message for each pair of hosts
// (block_relay.h), so both ends must know by the size of a block, without asking, how it
// travels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "platform/base/result.h"
#include "training/collective/collective_request.h"
#include "training/collective/staging.h"

namespace ff::collective {

// The most bytes of a block that travels with all others between two hosts, which have so many
// ranks. Larger ones are messages of their own, without the copies of gathering and spreading.
uint64_t gathered_block_max(uint32_t ranks_here, uint32_t ranks_there);

// Between this rank and another one.
struct BlockPair {
  SharedAddress in = {}, out = {};       // of blocks that travel with others and have bytes
  uint64_t in_bytes = 0, out_bytes = 0;  // that this rank sends and expects
  uint64_t their_in = 0, their_out = 0;  // that the other one sends, and expects: stored by rank 0
                                         // of the host; the same as above until it knows better
};

// Of one rank and one operation; the memory returns to the pool at the end.
class BlockTable {
 public:
  // A pair for each rank of the job.
  static Result<std::unique_ptr<BlockTable>> make(StagingPool& pool, uint32_t ranks);
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  std::span<BlockPair> pairs() const { return pairs_; }
  SharedAddress address() const;

 private:
  BlockTable(StagingPool& pool, std::shared_ptr<const net::SharedRegion> region, uint32_t ranks);

  StagingPool& pool_;
  std::shared_ptr<const net::SharedRegion> region_;
  std::span<BlockPair> pairs_;
};

}  // namespace ff::collective
