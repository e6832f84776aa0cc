// Memory of one operation, aligned as direct I/O wants it: what callers give rarely is, and a chunk
// ends where it ends. Not initialised. It holds no pool: the allocator keeps what is freed at hand.
//
// Buffers that live as long as a queue, and are registered with it, are io/buffers.h.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "platform/io/disk.h"

namespace ff::chunk {

class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t size) : size_(size) {
    void* const memory = std::aligned_alloc(io::kDirectAlign, align_up(size, io::kDirectAlign));
    FF_CHECK(memory != nullptr);
    bytes_.reset(static_cast<std::byte*>(memory));
  }

  ByteSpan span() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_ = 0;
};

}  // namespace ff::chunk
