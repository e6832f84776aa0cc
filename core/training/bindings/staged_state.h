// A copy of a state in memory of the library, laid out as a safetensors file, which a save can read
// while the program changes the original. The memory is reused for the next state, so that only the
// first copy and larger ones cost page faults.
#pragma once

#include <functional>
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
  // Lays out the tensors, copies those with data, and stores the address of tensor i in places[i].
  // The previous state is lost; `before_free` is called before its memory is freed for a larger
  // one. Tensors of wider elements come first, so that all are aligned.
  // Errc::usage: an unknown type, or a shape that does not fit the bytes; Errc::failed: no memory.
  Result<void> stage(std::span<const ff_tensor> tensors, std::span<const ff_text> metadata,
                     std::span<void*> places, const std::function<void()>& before_free);

  // All of it, of which a state may use less. After stage().
  ByteSpan memory() const { return memory_->all(); }

  // The file; valid until the next state.
  std::shared_ptr<io::File> file(const std::string& name);

 private:
  Result<void> make_room(uint64_t bytes, const std::function<void()>& before_free);

  std::string header_;  // length word and JSON
  uint64_t bytes_ = 0;  // of data
  std::optional<io::Buffers> memory_;
};

}  // namespace ff::bindings
