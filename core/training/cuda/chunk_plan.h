// How an operation on device memory is cut into chunks: what is copied from the device into staging
// memory, which operation of the host follows on it, and what is copied back. The ranks of a job
// have the same chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "training/collective/communicator.h"

namespace ff::cuda {

struct DeviceCopy {
  uint64_t device_at = 0;   // offset in the input or output
  uint64_t staging_at = 0;  // offset in the staging memory of the chunk
  uint64_t bytes = 0;
};

struct PlannedChunk {
  uint64_t count = 0;              // elements of the host's operation
  uint64_t in_at = 0, out_at = 0;  // where its input and output are in the staging memory: in place
  std::vector<DeviceCopy> from_device = {}, to_device = {};  // none of them is empty
};

class ChunkPlan {
 public:
  // Of allreduce, reduce, broadcast, all-gather and reduce-scatter. A chunk has at most
  // `chunk_bytes` in staging memory; at least 8 for each rank.
  ChunkPlan(const collective::Operation& operation, uint32_t rank, uint32_t ranks,
            uint64_t chunk_bytes);

  uint64_t chunks() const;  // at least 1: an operation without elements is one on the host, too
  PlannedChunk chunk(uint64_t index) const;

 private:
  const collective::Operation operation_;
  const uint32_t rank_, ranks_;
  const uint64_t element_bytes_;
  uint64_t chunk_elements_ = 0;  // of the last one, maybe less
};

}  // namespace ff::cuda
