// Layout of a disk: size classes, groups of blocks, checksum units. Pure arithmetic, and part of
// the disk format: a change needs a new format number.
//
// A size class has blocks of one size in one data file: 64 KiB, 128 KiB … 64 MiB. Space is reserved
// and released in groups of blocks. Each CRC32C covers one checksum unit, so that a small read does
// not have to read a whole block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/check.h"

namespace ff::chunk {

constexpr uint64_t kBlockMin = 64 * kKiB;
constexpr uint64_t kChunkMax = 64 * kMiB;
constexpr unsigned kSizeClasses = 11;
static_assert(kBlockMin << (kSizeClasses - 1) == kChunkMax);

// The smallest unit that direct I/O can read or write.
constexpr uint64_t kChecksumUnitMin = 4 * kKiB;
constexpr uint64_t kChecksumUnitsMax = 256;  // per block
constexpr uint64_t kGroupBlocks = 256;
constexpr uint64_t kGroupBytes = 256 * kMiB;  // upper limit: reserved by one file system call

// Overlay slots of a chunk: enough to keep small overwrites cheap, few enough to keep reads of the
// whole chunk in long extents.
constexpr uint64_t kOverlaySlots = 64;

using SizeClass = uint8_t;  // 0: 64 KiB

constexpr uint64_t block_bytes(SizeClass size_class) { return kBlockMin << size_class; }
constexpr uint64_t checksum_unit_bytes(SizeClass size_class) {
  return std::max(kChecksumUnitMin, block_bytes(size_class) / kChecksumUnitsMax);
}
constexpr uint64_t checksum_units(SizeClass size_class) {
  return block_bytes(size_class) / checksum_unit_bytes(size_class);
}
constexpr uint64_t group_blocks(SizeClass size_class) {
  return std::min(kGroupBlocks, kGroupBytes / block_bytes(size_class));
}
constexpr uint64_t group_bytes(SizeClass size_class) {
  return group_blocks(size_class) * block_bytes(size_class);
}

// The smallest size class whose blocks hold `length` bytes (at most kChunkMax).
constexpr SizeClass size_class_for(uint64_t length) {
  FF_CHECK(length <= kChunkMax);
  const uint64_t blocks = std::bit_ceil(std::max(length, kBlockMin)) / kBlockMin;
  return static_cast<SizeClass>(std::countr_zero(blocks));
}

// Size class of the overlay block of a block. Small blocks have no overlay: rewriting them costs as
// little.
constexpr bool has_overlay(SizeClass size_class) {
  return block_bytes(size_class) > kOverlaySlots * kChecksumUnitMin;
}
constexpr SizeClass overlay_class(SizeClass size_class) {
  return size_class_for(kOverlaySlots * checksum_unit_bytes(size_class));
}

static_assert(checksum_unit_bytes(0) == 4096 && checksum_units(0) == 16);
static_assert(checksum_unit_bytes(4) == 4096 && checksum_units(4) == 256);
static_assert(checksum_unit_bytes(10) == 256 * kKiB && checksum_units(10) == 256);
static_assert(group_bytes(0) == 16 * kMiB && group_bytes(4) == 256 * kMiB);
static_assert(group_blocks(10) == 4);
static_assert(overlay_class(4) == 2 && overlay_class(10) == 8 && !has_overlay(2));

// A block: its size class and its index in the data file of that class.
struct BlockLocation {
  SizeClass size_class = 0;
  uint64_t number = 0;
  auto operator<=>(const BlockLocation&) const = default;
  uint64_t offset() const { return number * block_bytes(size_class); }
};

// file name stem of a size class
inline std::string class_name(SizeClass size_class) {
  const uint64_t kib = block_bytes(size_class) / kKiB;
  return kib < 1024 ? std::to_string(kib) + "KiB" : std::to_string(kib / 1024) + "MiB";
}

}  // namespace ff::chunk
