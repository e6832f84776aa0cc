// A state in memory of the library's own: a safetensors file, its header beside its data, that a
// save can read while the program changes the original. The memory is kept for the next state, so
// that only the first copy, and one that is larger, meets pages the kernel has to find.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "platform/io/buffers.h"
#include "platform/io/disk.h"
#include "training/bindings/ff.h"

namespace ff::bindings {

class StagedState {
 public:
  // Lays the tensors out, copies those that have data, and says in places[i] where tensor i is; the
  // state before is gone. Tensors of wider elements come first, so that all are aligned.
  // Errc::usage for what cannot be (a type, a shape that does not fit), Errc::failed without
  // memory.
  Result<void> stage(std::span<const ff_tensor> tensors, std::span<const ff_text> metadata,
                     std::span<void*> places);

  // The file; valid until the next state.
  std::shared_ptr<io::File> file(const std::string& name);

 private:
  Result<void> make_room(uint64_t bytes);

  std::string header_;  // length word and JSON
  uint64_t bytes_ = 0;  // of data
  std::optional<io::Buffers> memory_;
};

}  // namespace ff::bindings
