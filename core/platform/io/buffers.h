// Memory for bulk I/O: equal slots, aligned for direct I/O, on huge pages where the kernel gives
// them (a device takes a few hundred segments a request; huge pages keep 4 MiB in two).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::io {

class Buffers {
 public:
  // `count` slots of `slot_bytes` (a multiple of kDirectAlign) each. Memory is touched on use.
  static Result<Buffers> make(size_t count, size_t slot_bytes);
  // The same of memory from elsewhere, which is given back at the end.
  static Buffers of(ByteSpan memory, size_t count, size_t slot_bytes,
                    std::function<void(ByteSpan)> give_back);
  ~Buffers();
  Buffers(Buffers&& other) noexcept;
  Buffers& operator=(Buffers&& other) noexcept;

  ByteSpan slot(size_t index) const;
  size_t count() const { return count_; }
  // The whole memory in one span, for IoQueue::register_buffers.
  ByteSpan all() const { return {base_, count_ * slot_bytes_}; }

 private:
  Buffers(std::byte* base, size_t mapped, size_t count, size_t slot_bytes);
  std::byte* base_ = nullptr;
  size_t mapped_ = 0;
  size_t count_ = 0;
  size_t slot_bytes_ = 0;
  std::function<void(ByteSpan)> give_back_;  // instead of unmapping it
};

}  // namespace ff::io
