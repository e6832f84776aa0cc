// buffer_pool.cc: the buddy allocator of the arena.
#include "storage/chain/buffer_pool.h"

#include <bit>

namespace ff::chain {

BufferPool::BufferPool(ByteSpan arena) : arena_(arena) {
  uint64_t at = 0;
  for (size_t order = kOrders; order > 0; order--) {
    const uint64_t size = kMinBytes << (order - 1);
    for (; at + size <= arena.size(); at += size) free_[order - 1].insert(at);
  }
}

size_t BufferPool::order_of(uint64_t size) {
  const uint64_t units = (size + kMinBytes - 1) / kMinBytes;
  return units <= 1 ? 0 : static_cast<size_t>(std::bit_width(units - 1));
}

BufferPool::Buffer BufferPool::allocate(uint64_t size) {
  Buffer buffer;
  const size_t wanted = order_of(size);
  size_t order = wanted;
  std::unique_lock lock(mutex_);
  while (order < kOrders && free_[order].empty()) order++;
  if (size == 0 || order >= kOrders) {
    lock.unlock();
    buffer.heap_ = chunk::AlignedBuffer(size);
    buffer.span_ = buffer.heap_.span();
    return buffer;
  }
  const uint64_t at = *free_[order].begin();
  free_[order].erase(free_[order].begin());
  while (order > wanted) {
    order--;
    free_[order].insert(at + (kMinBytes << order));
  }
  buffer.owner_ = this;
  buffer.span_ = arena_.subspan(at, size);
  return buffer;
}

BufferPool::Buffer BufferPool::reserve(ByteSpan memory) {
  Buffer buffer;
  const auto begin =
      reinterpret_cast<uintptr_t>(memory.data()) - reinterpret_cast<uintptr_t>(arena_.data());
  const size_t wanted = order_of(memory.size());
  const bool within = begin <= arena_.size() && memory.size() <= arena_.size() - begin;
  if (memory.empty() || !within || wanted >= kOrders || begin % (kMinBytes << wanted) != 0) {
    return buffer;
  }
  size_t order = wanted;
  const std::lock_guard lock(mutex_);
  while (order < kOrders && free_[order].erase(align_down(begin, kMinBytes << order)) == 0) order++;
  if (order == kOrders) return buffer;
  while (order > wanted) {
    order--;
    // The half without these bytes stays free.
    free_[order].insert(align_down(begin, kMinBytes << order) ^ (kMinBytes << order));
  }
  buffer.owner_ = this;
  buffer.span_ = memory;
  return buffer;
}

void BufferPool::release(ByteSpan span) {
  auto at = static_cast<uint64_t>(span.data() - arena_.data());
  size_t order = order_of(span.size());
  const std::lock_guard lock(mutex_);
  for (; order + 1 < kOrders; order++) {
    const uint64_t other_half = at ^ (kMinBytes << order);
    if (free_[order].erase(other_half) == 0) break;
    at = std::min(at, other_half);
  }
  free_[order].insert(at);
}

uint64_t BufferPool::free_bytes() const {
  uint64_t bytes = 0;
  const std::lock_guard lock(mutex_);
  for (size_t order = 0; order < kOrders; order++)
    bytes += free_[order].size() * (kMinBytes << order);
  return bytes;
}

}  // namespace ff::chain
