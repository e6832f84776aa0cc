// The buffers for requests from /dev/fuse, which the threads of a mount share. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "storage/mount/fuse_request.h"

namespace ff::mount {

class FuseSlots {
 public:
  // Bytes per slot: a page that ends with the headers, then the data of one WRITE.
  static constexpr uint64_t kBytes = kWriteMax + 4 * kKiB;

  // `memory` outlives it.
  explicit FuseSlots(ByteSpan memory);

  // Nothing: not more than `spare` slots are free.
  std::optional<size_t> acquire(size_t spare = 0);
  void release(size_t slot);
  ByteSpan memory(size_t slot) const { return memory_.subspan(slot * kBytes, kBytes); }
  size_t size() const { return memory_.size() / kBytes; }
  size_t in_use() const;
  ByteSpan memory_from(size_t slot) const { return memory_.subspan(slot * kBytes); }
  // Keeps the first `count` slots only. The others must be free.
  void shrink(size_t count);

 private:
  mutable std::mutex mutex_;
  ByteSpan memory_;           // changes before other threads use it
  std::vector<size_t> free_;  // the lowest last
};

}  // namespace ff::mount
