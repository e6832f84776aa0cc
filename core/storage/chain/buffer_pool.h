// Buffers for the data of updates, reads and copies, aligned for direct I/O. They come from an
// arena that other processes access directly (net/system_transport.h, memory()), or from the heap
// when the arena is full or absent. Thread-safe.
//
// The arena is a buddy allocator: sizes are powers of two, the lowest free offset is used first so
// that rarely used memory is rarely touched, and two free halves merge.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

class BufferPool {
 public:
  // The arena must outlive it.
  explicit BufferPool(ByteSpan arena = {});
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Uninitialized memory, released by the destructor. The pool must outlive it.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          span_(std::exchange(other.span_, {})),
          heap_(std::move(other.heap_)) {}
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(span_, other.span_);
      std::swap(heap_, other.heap_);
      return *this;
    }
    ~Buffer() {
      if (owner_ != nullptr) owner_->release(span_);
    }
    ByteSpan span() const { return span_; }

   private:
    friend class BufferPool;
    BufferPool* owner_ = nullptr;  // null for heap memory
    ByteSpan span_;
    chunk::AlignedBuffer heap_;
  };
  // Sizes above kChunkMax come from the heap.
  Buffer allocate(uint64_t size);
  // These bytes of the arena, which another process has filled before: they stay as they are. An
  // empty buffer: they are not free, or no buffer of this size begins there.
  Buffer reserve(ByteSpan memory);
  // Free bytes of the arena.
  uint64_t free_bytes() const;

 private:
  static constexpr uint64_t kMinBytes = io::kDirectAlign;
  static constexpr size_t kOrders = 15;  // kMinBytes << order, up to kChunkMax
  static_assert(kMinBytes << (kOrders - 1) == chunk::kChunkMax);

  static size_t order_of(uint64_t size);
  void release(ByteSpan span);

  const ByteSpan arena_;
  mutable std::mutex mutex_;
  std::array<std::set<uint64_t>, kOrders> free_;  // offsets
};

}  // namespace ff::chain
