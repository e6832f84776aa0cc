// chunk_plan.cc: offsets of chunks, of operations whose ranks have one block or a block each.
#include "training/cuda/chunk_plan.h"

#include <algorithm>

#include "platform/base/bytes.h"

namespace ff::cuda {

namespace {

using collective::Collective;

constexpr uint64_t kCacheLine = 64;

// Whether the input or the output has a block for each rank. In staging memory both have them.
bool has_blocks(Collective kind) {
  return kind == Collective::allgather || kind == Collective::reduce_scatter;
}

}  // namespace

ChunkPlan::ChunkPlan(const collective::Operation& operation, uint32_t rank, uint32_t ranks,
                     uint64_t chunk_bytes)
    : operation_(operation),
      rank_(rank),
      ranks_(ranks),
      element_bytes_(simd::size_of(operation.type)) {
  const uint64_t blocks = has_blocks(operation.kind) ? ranks : 1;
  uint64_t bytes = chunk_bytes / blocks;
  if (bytes >= kCacheLine) bytes = align_down(bytes, kCacheLine);
  chunk_elements_ = bytes / element_bytes_;
  FF_CHECK(chunk_elements_ > 0);
}

uint64_t ChunkPlan::chunks() const {
  return std::max<uint64_t>(1, (operation_.count + chunk_elements_ - 1) / chunk_elements_);
}

PlannedChunk ChunkPlan::chunk(uint64_t index) const {
  const uint64_t first = index * chunk_elements_;
  PlannedChunk made{.count = std::min(chunk_elements_, operation_.count - first)};
  if (made.count == 0) return made;
  const uint64_t bytes = made.count * element_bytes_, at = first * element_bytes_;
  const uint64_t block_bytes = operation_.count * element_bytes_;
  const DeviceCopy whole{.device_at = at, .staging_at = 0, .bytes = bytes};
  const DeviceCopy own{.device_at = at, .staging_at = rank_ * bytes, .bytes = bytes};
  std::vector<DeviceCopy> blocks;
  for (uint64_t block = 0; has_blocks(operation_.kind) && block < ranks_; block++) {
    blocks.push_back(
        {.device_at = block * block_bytes + at, .staging_at = block * bytes, .bytes = bytes});
  }
  const bool is_root = operation_.root == rank_;
  switch (operation_.kind) {
    case Collective::reduce:
      made.from_device = {whole};
      if (is_root) made.to_device = {whole};
      break;
    case Collective::broadcast:
      if (is_root) made.from_device = {whole};
      if (!is_root || operation_.in != operation_.out) made.to_device = {whole};
      break;
    case Collective::allgather:
      made.in_at = own.staging_at;
      made.from_device = {own};
      made.to_device = std::move(blocks);
      break;
    case Collective::reduce_scatter:
      made.out_at = own.staging_at;
      made.from_device = std::move(blocks);
      made.to_device = {own};
      break;
    default: made.from_device = made.to_device = {whole};
  }
  return made;
}

}  // namespace ff::cuda
