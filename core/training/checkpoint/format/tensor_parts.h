// What a safetensors file says of its tensors in the text `ff.parts` of its __metadata__, as JSON:
//
//   {"slices":{NAME:{"tensor":WHOLE,"shape":[...],"start":[...]},...},"objects":[NAME,...]}
//
// Tensor NAME of the file is the slice of tensor WHOLE, which has that shape, from `start` on; or
// its bytes are an object of the program that saved it. ff.torch.dcp writes it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/format/safetensors.h"

namespace ff::checkpoint {

constexpr std::string_view kTensorPartsKey = "ff.parts";

struct TensorParts {
  struct Slice {
    std::string tensor;
    std::vector<uint64_t> shape;  // of the whole tensor
    std::vector<uint64_t> start;
  };
  std::map<std::string, Slice, std::less<>> slices;
  std::set<std::string, std::less<>> objects;
};

// What the file of this header says; nothing when it has no such text. Errc::failed: the text is
// malformed, or does not fit the tensors of the header.
Result<TensorParts> tensor_parts_of(const SafetensorsHeader& header);

// Only the text. Errc::failed.
Result<TensorParts> parse_tensor_parts(std::string_view json);

}  // namespace ff::checkpoint
