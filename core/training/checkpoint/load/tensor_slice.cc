// tensor_slice.cc: slices of row-major tensors as byte runs.
#include "training/checkpoint/load/tensor_slice.h"

#include <algorithm>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

std::optional<uint64_t> parse_bound(std::string_view text, uint64_t fallback) {
  return text.empty() ? fallback : parse_u64(text);
}

}  // namespace

Result<std::vector<SliceRange>> parse_slice(std::string_view text) {
  std::vector<SliceRange> slice;
  for (const std::string_view part : split(text, ',')) {
    const size_t colon = part.find(':');
    const auto begin = parse_bound(part.substr(0, colon), 0);
    const auto end =
        colon == part.npos ? std::nullopt : parse_bound(part.substr(colon + 1), kToEnd);
    if (!begin || !end || *begin > *end) {
      return Error{Errc::usage, "'" + printable(text) + "' is not a slice",
                   "Write BEGIN:END for each dimension, as in '0:1024,:'."};
    }
    slice.push_back({*begin, *end});
  }
  return slice;
}

Result<std::vector<SliceRange>> fit_slice(const std::vector<SliceRange>& slice,
                                          const std::vector<uint64_t>& shape) {
  if (slice.size() > shape.size()) {
    return fail(Errc::usage, "the slice has {} dimensions, the tensor {}", slice.size(),
                shape.size());
  }
  std::vector<SliceRange> fitted;
  for (size_t i = 0; i < shape.size(); i++) {
    const SliceRange range = i < slice.size() ? slice[i] : SliceRange{0, kToEnd};
    if (range.begin > shape[i]) {
      return fail(Errc::usage, "the slice begins at {} in dimension {}, which has {} elements",
                  range.begin, i, shape[i]);
    }
    fitted.push_back({range.begin, std::min(range.end, shape[i])});
  }
  return fitted;
}

BoxRuns::BoxRuns(const BoxCopy& box) {
  const size_t dimensions = box.size.size();
  ended_ = std::find(box.size.begin(), box.size.end(), 0U) != box.size.end();
  if (ended_) return;
  // Dimensions from `inner` on are whole on both sides, so they and the one before form one run.
  size_t inner = dimensions;
  while (inner > 0 && box.size[inner - 1] == box.from_shape[inner - 1] &&
         box.size[inner - 1] == box.to_shape[inner - 1]) {
    inner--;
  }
  const size_t outer = inner > 0 ? inner - 1 : 0;  // dimensions that are stepped through
  from_stride_.resize(dimensions);
  to_stride_.resize(dimensions);
  uint64_t from_step = box.element_bytes;
  uint64_t to_step = box.element_bytes;
  at_.length = box.element_bytes;
  for (size_t i = dimensions; i-- > 0;) {
    from_stride_[i] = from_step;
    to_stride_[i] = to_step;
    from_step *= box.from_shape[i];
    to_step *= box.to_shape[i];
    if (i >= outer) at_.length *= box.size[i];
  }
  for (size_t i = 0; i < dimensions; i++) {
    at_.from += box.from_start[i] * from_stride_[i];
    at_.to += box.to_start[i] * to_stride_[i];
  }
  size_.assign(box.size.begin(), box.size.begin() + static_cast<ptrdiff_t>(outer));
  index_.assign(outer, 0);
}

std::optional<ByteRun> BoxRuns::next() {
  if (ended_) return std::nullopt;
  const ByteRun run = at_;
  advance();
  return run;
}

// The next index, like an odometer.
void BoxRuns::advance() {
  for (size_t i = size_.size(); i-- > 0;) {
    at_.from += from_stride_[i];
    at_.to += to_stride_[i];
    if (++index_[i] < size_[i]) return;
    at_.from -= from_stride_[i] * size_[i];
    at_.to -= to_stride_[i] * size_[i];
    index_[i] = 0;
  }
  ended_ = true;
}

Result<void> for_each_run(const BoxCopy& box, const std::function<Result<void>(ByteRun)>& run) {
  BoxRuns runs(box);
  while (const auto one = runs.next()) FF_TRY(run(*one));
  return {};
}

}  // namespace ff::checkpoint
