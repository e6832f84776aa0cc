// Parts of tensors as byte ranges. Tensors are row-major without gaps (safetensors).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::checkpoint {

// [begin, end) in one dimension; an end of kToEnd means the whole rest.
struct SliceRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
constexpr uint64_t kToEnd = UINT64_MAX;

// "0:1024,:,3:": one range for each dimension; trailing dimensions may be omitted. Errc::usage.
Result<std::vector<SliceRange>> parse_slice(std::string_view text);

// Fits a slice to a shape: ends clipped to the dimension, missing dimensions filled in. Errc::usage
// when it has too many dimensions or begins beyond one.
Result<std::vector<SliceRange>> fit_slice(const std::vector<SliceRange>& slice,
                                          const std::vector<uint64_t>& shape);

// A run of bytes copied from one tensor's bytes to another's.
struct ByteRun {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t length = 0;
};

// A box of elements, the same size on both sides, inside a source and a target tensor.
struct BoxCopy {
  std::vector<uint64_t> from_shape;
  std::vector<uint64_t> from_start;
  std::vector<uint64_t> to_shape;
  std::vector<uint64_t> to_start;
  std::vector<uint64_t> size;  // elements in each dimension
  uint64_t element_bytes = 1;
};

// Walks the longest runs of bytes that are contiguous on both sides, in order of `to`. A tensor may
// have as many runs as bytes, so they are made one by one.
class BoxRuns {
 public:
  // The products of the shapes and the size of an element fit 64 bits, unless the box is empty.
  explicit BoxRuns(const BoxCopy& box);
  // Nothing after the last one.
  std::optional<ByteRun> next();

 private:
  void advance();

  bool ended_ = false;
  ByteRun at_;
  std::vector<uint64_t> size_;         // of the dimensions that are stepped through
  std::vector<uint64_t> from_stride_;  // of all dimensions
  std::vector<uint64_t> to_stride_;
  std::vector<uint64_t> index_;
};

// Calls `run` for each of them. The first error ends it.
Result<void> for_each_run(const BoxCopy& box, const std::function<Result<void>(ByteRun)>& run);

}  // namespace ff::checkpoint
