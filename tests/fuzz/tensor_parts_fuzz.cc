// The text `ff.parts` from anywhere: no crash, no hang, and what is accepted is within the bounds
// that a save relies on.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/check.h"
#include "training/checkpoint/format/slice_cover.h"
#include "training/checkpoint/format/tensor_parts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ff::checkpoint;
  const auto parts = parse_tensor_parts({reinterpret_cast<const char*>(data), size});
  if (!parts) return 0;
  for (const auto& [name, slice] : parts->slices) {
    FF_CHECK(!slice.tensor.empty() && !slice.shape.empty());
    FF_CHECK(slice.shape.size() == slice.start.size());
    FF_CHECK(slice.shape.size() <= kSafetensorsDimensionsMax);
    SliceCover cover;
    for (size_t i = 0; i < slice.shape.size(); i++) {
      FF_CHECK(slice.shape[i] <= kSafetensorsDimensionMax);
      FF_CHECK(slice.start[i] <= kSafetensorsDimensionMax);
    }
    cover.add(std::vector<uint64_t>(slice.shape.size(), 0), slice.shape);
    (void)cover.check(slice.shape);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {R"({"slices":{"w":{"tensor":"w","shape":[6,4],"start":[3,0]},)"
          R"("w~2":{"tensor":"w","shape":[6,4],"start":[0,0]}},"objects":["epoch","ff.dcp"]})",
          R"({"objects":[],"slices":{}})",
          R"({"slices":{"a\u0000b":{"start":[1],"shape":[2],)"
          R"("tensor":"\ud83d\ude00"}}})"};
}
