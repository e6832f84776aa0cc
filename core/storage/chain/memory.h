// Memory for the data of updates, reads and copies under way, aligned for direct I/O: from an arena
// that other processes reach without bytes in frames (net/system_transport.h, memory()), or from
// the heap while that is full, or where there is none. Owned by one loop.
//
// The arena is given out in powers of two, the lowest place first, so that what is rarely used is
// rarely touched; two halves that are both free are one again (a buddy system).
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "storage/chunk/aligned_bytes.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

class Memory {
 public:
  // The arena outlives it.
  explicit Memory(ByteSpan arena = {});
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Not initialised; given back when it goes. The Memory outlives it.
  class Bytes {
   public:
    Bytes() = default;
    Bytes(Bytes&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          span_(std::exchange(other.span_, {})),
          heap_(std::move(other.heap_)) {}
    Bytes& operator=(Bytes&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(span_, other.span_);
      std::swap(heap_, other.heap_);
      return *this;
    }
    ~Bytes() {
      if (owner_ != nullptr) owner_->give(span_);
    }
    ByteSpan span() const { return span_; }

   private:
    friend class Memory;
    Memory* owner_ = nullptr;  // of what lies in the arena
    ByteSpan span_;
    chunk::AlignedBytes heap_;
  };
  // At most kChunkMax of the arena.
  Bytes take(uint64_t size);
  // Of the arena.
  uint64_t free_bytes() const;

 private:
  static constexpr uint64_t kLeast = io::kDirectAlign;
  static constexpr size_t kOrders = 15;  // kLeast << order, up to kChunkMax
  static_assert(kLeast << (kOrders - 1) == chunk::kChunkMax);

  static size_t order_of(uint64_t size);
  void give(ByteSpan span);

  const ByteSpan arena_;
  std::array<std::set<uint64_t>, kOrders> free_;  // offsets
};

}  // namespace ff::chain
