// Uninitialized memory for one I/O operation, aligned as direct I/O requires. It bounces data of
// callers whose own memory is not aligned. Freed memory goes back to the allocator; there is no
// pool.
//
// Buffers that live as long as an I/O queue and are registered with it are in io/buffers.h.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "platform/io/disk.h"

namespace ff::chunk {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size) {
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
