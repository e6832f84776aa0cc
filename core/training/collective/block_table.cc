// block_table.cc: memory from the staging pool.
#include "training/collective/block_table.h"

#include <algorithm>
#include <memory>

namespace ff::collective {

namespace {

constexpr uint64_t kGatheredBlockMax = 32 * kKiB;
// Of all blocks between two hosts: they are one frame (net::kMessageMax), and wait in memory if the
// receiver has not started the operation.
constexpr uint64_t kGatheredBytesMax = 512 * kKiB;

}  // namespace

uint64_t gathered_block_max(uint32_t ranks_here, uint32_t ranks_there) {
  return std::min(kGatheredBlockMax, kGatheredBytesMax / ranks_here / ranks_there);
}

Result<std::unique_ptr<BlockTable>> BlockTable::make(StagingPool& pool, uint32_t ranks) {
  FF_TRY(auto region, pool.get(ranks * sizeof(BlockPair)));
  return std::unique_ptr<BlockTable>(new BlockTable(pool, std::move(region), ranks));
}

BlockTable::BlockTable(StagingPool& pool, std::shared_ptr<const net::SharedRegion> region,
                       uint32_t ranks)
    : pool_(pool),
      region_(std::move(region)),
      pairs_(reinterpret_cast<BlockPair*>(region_->memory().data()), ranks) {
  std::ranges::uninitialized_fill(pairs_, BlockPair{});
}

BlockTable::~BlockTable() { pool_.give_back(std::move(region_)); }

SharedAddress BlockTable::address() const { return {.offset = 0, .region = region_->id()}; }

}  // namespace ff::collective
