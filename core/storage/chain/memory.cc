// memory.cc: halves, and halves of halves.
#include "storage/chain/memory.h"

#include <bit>

namespace ff::chain {

Memory::Memory(ByteSpan arena) : arena_(arena) {
  uint64_t at = 0;
  for (size_t order = kOrders; order > 0; order--) {
    const uint64_t size = kLeast << (order - 1);
    for (; at + size <= arena.size(); at += size) free_[order - 1].insert(at);
  }
}

size_t Memory::order_of(uint64_t size) {
  const uint64_t units = (size + kLeast - 1) / kLeast;
  return units <= 1 ? 0 : static_cast<size_t>(std::bit_width(units - 1));
}

Memory::Bytes Memory::take(uint64_t size) {
  Bytes bytes;
  const size_t wanted = order_of(size);
  size_t order = wanted;
  while (order < kOrders && free_[order].empty()) order++;
  if (size == 0 || order >= kOrders) {
    bytes.heap_ = chunk::AlignedBytes(size);
    bytes.span_ = bytes.heap_.span();
    return bytes;
  }
  const uint64_t at = *free_[order].begin();
  free_[order].erase(free_[order].begin());
  while (order > wanted) {
    order--;
    free_[order].insert(at + (kLeast << order));
  }
  bytes.owner_ = this;
  bytes.span_ = arena_.subspan(at, size);
  return bytes;
}

void Memory::give(ByteSpan span) {
  auto at = static_cast<uint64_t>(span.data() - arena_.data());
  size_t order = order_of(span.size());
  for (; order + 1 < kOrders; order++) {
    const uint64_t other_half = at ^ (kLeast << order);
    if (free_[order].erase(other_half) == 0) break;
    at = std::min(at, other_half);
  }
  free_[order].insert(at);
}

uint64_t Memory::free_bytes() const {
  uint64_t bytes = 0;
  for (size_t order = 0; order < kOrders; order++) bytes += free_[order].size() * (kLeast << order);
  return bytes;
}

}  // namespace ff::chain
