// A value of a pickle as the state of a checkpoint: its tensors, each under the name of its path,
// and the structure around them as JSON, which `ff.load()` of Python turns into the same containers
// (bindings/ff/_state.py describes it, the text `ff.state` of a safetensors file).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/import/pickle.h"
#include "training/checkpoint/import/tensor_file.h"
#include "training/checkpoint/import/torch_file.h"

namespace ff::checkpoint {

inline constexpr std::string_view kStateKey = "ff.state";
constexpr int kStateDepthMax = 200;       // of containers, as _state.py has it
constexpr size_t kLeftOutPathsMax = 100;  // that are named

struct TorchState {
  std::string document;                 // JSON
  std::vector<ImportedTensor> tensors;  // also texts of bytes, as U8
  std::vector<CheckedBytes> storages;   // of the tensors; each once
  uint64_t values = 0;                  // numbers, texts, ... that are not tensors
  // Values of classes that ff does not know, and attributes of tensors, are not imported: their
  // number, and the paths of the first ones.
  uint64_t left_out = 0;
  std::vector<std::string> left_out_paths;
};

// With `skip_unknown`, values that a state cannot have are left out: entries of a dict with their
// keys, elements of other containers become None. Errc::refused: there is such a value; failed: it
// nests too deeply, or is too large; corrupt: a tensor cannot be.
Result<TorchState> torch_state(const TorchFile& file, bool skip_unknown);

// A name that C can have, too: without zero bytes.
std::string storable_name(std::string_view name);

// Only the JSON, of a value that has no tensors.
Result<std::string> structure_of(const Pickle& pickle, Pickle::Id id);

}  // namespace ff::checkpoint
