// The differences between two checkpoints of one store, by tensor and file. Digests of chunks and
// CRC32Cs decide most of it; only the rest is read. With `values`, the elements of changed tensors
// are compared.
//
// Both indexes are read front to back; memory is about 50 bytes for each entry of A.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/tensor_values.h"

namespace ff::checkpoint {

struct DiffOptions {
  std::string a;  // RUN[@STEP]
  std::string b;
  bool values = false;
};

enum class DiffState : uint8_t { same, changed, added, removed };

// One side of an entry.
struct DiffSide {
  uint64_t size = 0;            // bytes; of a safetensors file those of its header
  std::string dtype;            // tensors only
  std::vector<uint64_t> shape;  // tensors only
};

struct DiffEntry {
  std::string file;
  uint32_t rank = 0;
  std::optional<std::string> tensor;  // nothing: the file itself (a safetensors file: its header)
  EntryKind kind = EntryKind::opaque;
  DiffState state = DiffState::same;
  std::optional<DiffSide> a;  // not when added
  std::optional<DiffSide> b;  // not when removed
  // Bytes in chunks, or parts of chunks, that differ: an upper limit of the changed bytes. All
  // bytes of an added or removed entry.
  uint64_t differing = 0;
  std::optional<ValueChanges> values;  // changed, same type and shape, a type with arithmetic
};

struct DiffCount {
  uint64_t same = 0;
  uint64_t changed = 0;
  uint64_t added = 0;
  uint64_t removed = 0;
  uint64_t differing = 0;  // bytes
};

struct DiffReport {
  StepName a;
  StepName b;
  DiffCount tensors;
  DiffCount files;  // opaque files, links, directories, headers; tensors count above
  int64_t elapsed_ns = 0;
};

// Calls `on_entry` for all entries in the order of B, then for those that only A has, in the order
// of A; its error ends the diff. Two checkpoints without changed, added or removed entries have the
// same bytes; their names, modes and times may differ. Errors: not_found, corrupt, usage,
// interrupted, deadline.
Result<DiffReport> diff(Context& context, const std::string& store_path, const DiffOptions& options,
                        const std::function<Result<void>(const DiffEntry&)>& on_entry);

}  // namespace ff::checkpoint
