// Shared memory into which operations copy what the other ranks cannot reach, and a pool of it.
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/net/shared_region.h"
#include "training/collective/host_group.h"
#include "training/collective/numa_placement.h"

namespace ff::collective {

class StagingPool {
 public:
  StagingPool(HostGroup& group, const NumaPlacement& placement)
      : group_(group), placement_(placement) {}

  // A region that all ranks of the host map, interleaved over the NUMA nodes.
  Result<std::shared_ptr<const net::SharedRegion>> make_region(uint64_t bytes);
  // A region of the pool, or a new one.
  Result<std::shared_ptr<const net::SharedRegion>> get(uint64_t bytes);
  void give_back(std::shared_ptr<const net::SharedRegion> region);
  std::optional<SharedAddress> address_of(ByteView memory) const {
    return group_.address_of(memory);
  }

 private:
  HostGroup& group_;
  const NumaPlacement& placement_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const net::SharedRegion>> free_;  // guarded by mutex_
};

// Memory of an operation: the program's own, and a region for it if the others cannot reach that.
// The pool gets the region back at the end.
class StagedMemory {
 public:
  StagedMemory(StagingPool& pool, ByteSpan memory) : pool_(pool), memory_(memory) {}
  ~StagedMemory();
  StagedMemory(const StagedMemory&) = delete;
  StagedMemory& operator=(const StagedMemory&) = delete;

  ByteSpan memory() const { return memory_; }
  // Where the other ranks reach these bytes; `copies` them there if need be.
  Result<SharedAddress> share(uint64_t offset, uint64_t bytes, bool copies);
  // What the other ranks have written there.
  void store(uint64_t offset, uint64_t bytes);

 private:
  StagingPool& pool_;
  const ByteSpan memory_;
  std::shared_ptr<const net::SharedRegion> region_;  // null: not needed so far
};

}  // namespace ff::collective
