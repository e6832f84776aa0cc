// slice_cover.cc: slices that have as many elements as the tensor cover it if none overlap. Only
// slices that overlap in one dimension, the one with the fewest such pairs, are compared in full.
#include "training/checkpoint/format/slice_cover.h"

#include <algorithm>
#include <numeric>

#include "platform/base/check.h"

namespace ff::checkpoint {
namespace {

// Slices of a million ranks, in a grid, are compared within seconds; crafted ones could take years.
constexpr uint64_t kPairsMax = uint64_t{1} << 32;

uint64_t product(const uint64_t* begin, const uint64_t* end) {
  uint64_t elements = 1;
  if (std::find(begin, end, 0U) != end) return 0;
  for (; begin != end; ++begin) {
    if (__builtin_mul_overflow(elements, *begin, &elements)) return UINT64_MAX;
  }
  return elements;
}

}  // namespace

void SliceCover::add(const std::vector<uint64_t>& start, const std::vector<uint64_t>& shape) {
  FF_CHECK(start.size() == shape.size() && (count_ == 0 || dimensions_ == start.size()));
  dimensions_ = start.size();
  const uint64_t elements = product(shape.data(), shape.data() + shape.size());
  if (elements == 0) return;
  if (__builtin_add_overflow(elements_, elements, &elements_)) elements_ = UINT64_MAX;
  for (size_t i = 0; i < start.size(); i++) {
    boxes_.push_back(start[i]);
    boxes_.push_back(start[i] + shape[i]);
  }
  count_++;
}

uint64_t SliceCover::start(size_t slice, size_t dimension) const {
  return boxes_[(slice * dimensions_ + dimension) * 2];
}
uint64_t SliceCover::end(size_t slice, size_t dimension) const {
  return boxes_[(slice * dimensions_ + dimension) * 2 + 1];
}

bool SliceCover::overlap(const std::vector<uint32_t>& by_start, size_t dimension) const {
  for (size_t i = 0; i < count_; i++) {
    const size_t one = by_start[i];
    for (size_t j = i + 1; j < count_; j++) {
      const size_t other = by_start[j];
      if (start(other, dimension) >= end(one, dimension)) break;
      bool apart = false;
      for (size_t k = 0; k < dimensions_ && !apart; k++) {
        apart = start(other, k) >= end(one, k) || start(one, k) >= end(other, k);
      }
      if (!apart) return true;
    }
  }
  return false;
}

Result<void> SliceCover::check(const std::vector<uint64_t>& whole) const {
  const uint64_t wanted = product(whole.data(), whole.data() + whole.size());
  if (wanted == UINT64_MAX || elements_ != wanted) {
    return fail(Errc::failed, "its slices have {} elements instead of {}", elements_, wanted);
  }
  uint64_t fewest = UINT64_MAX;
  std::vector<uint32_t> best;
  size_t along = 0;
  for (size_t dimension = 0; dimension < dimensions_ && fewest > 0; dimension++) {
    std::vector<uint32_t> order(count_);
    std::iota(order.begin(), order.end(), 0U);
    const auto start_of = [&](uint32_t slice) { return start(slice, dimension); };
    std::ranges::sort(order, {}, start_of);
    uint64_t pairs = 0;
    for (size_t i = 0; i < count_; i++) {
      const auto after = std::ranges::lower_bound(order, end(order[i], dimension), {}, start_of);
      pairs += static_cast<uint64_t>(after - order.begin()) - i - 1;
    }
    if (pairs >= fewest) continue;
    fewest = pairs;
    best = std::move(order);
    along = dimension;
  }
  if (fewest == 0 || count_ < 2) return {};
  if (fewest > kPairsMax) return fail(Errc::failed, "its slices are too many to compare");
  if (overlap(best, along)) return fail(Errc::failed, "two of its slices overlap");
  return {};
}

}  // namespace ff::checkpoint
