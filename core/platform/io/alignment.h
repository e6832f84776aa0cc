// The alignment rule of direct I/O: offset, length and memory address are multiples of
// kDirectAlign. Queues and files of every Disk check it, so that a violation is found on the
// simulated disk too, not only on a file system that enforces it.
#pragma once

#include <cstdint>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "platform/io/disk.h"

namespace ff::io {

inline bool direct_aligned(ByteView memory, uint64_t offset) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return (address | memory.size() | offset) % kDirectAlign == 0;
}

// FF_CHECKs the rule if `file` is open for direct I/O.
inline void check_direct(const File& file, ByteView memory, uint64_t offset) {
  FF_CHECK(!file.direct() || direct_aligned(memory, offset));
}

}  // namespace ff::io
