// Buffers: memory for bulk I/O in equal slots, aligned for direct I/O, on huge pages if available.
// A device accepts a few hundred segments per request; with huge pages 4 MiB need only two.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::io {

class Buffers {
 public:
  // Maps `count` slots of `slot_bytes` (a multiple of kDirectAlign) each. Pages are allocated on
  // first use.
  static Result<Buffers> make(size_t count, size_t slot_bytes);
  // Uses memory of another owner; the destructor passes it to `release`.
  static Buffers from_memory(ByteSpan memory, size_t count, size_t slot_bytes,
                             std::function<void(ByteSpan)> release);
  ~Buffers();
  Buffers(Buffers&& other) noexcept;
  Buffers& operator=(Buffers&& other) noexcept;

  ByteSpan slot(size_t index) const;
  size_t count() const { return count_; }
  // The whole memory in one span, for IoQueue::register_buffers.
  ByteSpan all() const { return {base_, count_ * slot_bytes_}; }

 private:
  Buffers(std::byte* base, size_t mapped, size_t count, size_t slot_bytes);
  std::byte* base_ = nullptr;
  size_t mapped_ = 0;
  size_t count_ = 0;
  size_t slot_bytes_ = 0;
  std::function<void(ByteSpan)> release_;  // called instead of munmap; may be empty
};

}  // namespace ff::io
