// The slices of one tensor: whether they make up all of it, each element once.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/base/result.h"

namespace ff::checkpoint {

class SliceCover {
 public:
  // `start` and `shape` have as many dimensions as the whole tensor; the slice lies inside it.
  void add(const std::vector<uint64_t>& start, const std::vector<uint64_t>& shape);
  // `whole` is the shape of the tensor. Errc::failed: elements are missing, or in several slices.
  Result<void> check(const std::vector<uint64_t>& whole) const;

 private:
  bool overlap(const std::vector<uint32_t>& by_start, size_t dimension) const;
  uint64_t start(size_t slice, size_t dimension) const;
  uint64_t end(size_t slice, size_t dimension) const;

  size_t dimensions_ = 0;
  size_t count_ = 0;
  uint64_t elements_ = 0;        // of all slices; UINT64_MAX: too many
  std::vector<uint64_t> boxes_;  // start and end of each slice in each dimension
};

}  // namespace ff::checkpoint
