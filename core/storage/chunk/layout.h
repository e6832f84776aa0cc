// How a disk is divided: block classes, groups of blocks, granules of blocks. Pure arithmetic, and
// part of the disk format: a change needs a new format number.
//
// A class holds blocks of one size, in one data file: 64 KiB, 128 KiB … 64 MiB. Space is reserved
// and given back by groups of blocks. A CRC32C covers one granule, so that a small read does not
// read a whole block to be checked.
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
constexpr unsigned kClasses = 11;
static_assert(kBlockMin << (kClasses - 1) == kChunkMax);

// 4 KiB, for direct I/O reads and writes no less.
constexpr uint64_t kGranuleMin = 4 * kKiB;
constexpr uint64_t kGranulesMax = 256;  // of a block
constexpr uint64_t kGroupBlocks = 256;
constexpr uint64_t kGroupBytes = 256 * kMiB;  // at most: what one file system call reserves

// Replaced pieces of a chunk: enough that small overwrites cost little more than their own bytes,
// few enough that a read of the whole chunk stays in long runs.
constexpr uint64_t kPieces = 64;

using Class = uint8_t;  // 0: 64 KiB

constexpr uint64_t block_bytes(Class of) { return kBlockMin << of; }
constexpr uint64_t granule_bytes(Class of) {
  return std::max(kGranuleMin, block_bytes(of) / kGranulesMax);
}
constexpr uint64_t granules(Class of) { return block_bytes(of) / granule_bytes(of); }
constexpr uint64_t group_blocks(Class of) {
  return std::min(kGroupBlocks, kGroupBytes / block_bytes(of));
}
constexpr uint64_t group_bytes(Class of) { return group_blocks(of) * block_bytes(of); }

// The smallest class whose blocks hold `length` bytes, at most kChunkMax.
constexpr Class class_for(uint64_t length) {
  FF_CHECK(length <= kChunkMax);
  const uint64_t blocks = std::bit_ceil(std::max(length, kBlockMin)) / kBlockMin;
  return static_cast<Class>(std::countr_zero(blocks));
}

// The class of the second block that holds replaced pieces of blocks of a class. Small blocks have
// none: writing them again costs as little.
constexpr bool has_pieces(Class of) { return block_bytes(of) > kPieces * kGranuleMin; }
constexpr Class piece_class(Class of) { return class_for(kPieces * granule_bytes(of)); }

static_assert(granule_bytes(0) == 4096 && granules(0) == 16);
static_assert(granule_bytes(4) == 4096 && granules(4) == 256);
static_assert(granule_bytes(10) == 256 * kKiB && granules(10) == 256);
static_assert(group_bytes(0) == 16 * kMiB && group_bytes(4) == 256 * kMiB);
static_assert(group_blocks(10) == 4);
static_assert(piece_class(4) == 2 && piece_class(10) == 8 && !has_pieces(2));

// A block: blocks of a class are numbered in the order they lie in its file.
struct Place {
  Class of = 0;
  uint64_t number = 0;
  auto operator<=>(const Place&) const = default;
  uint64_t offset() const { return number * block_bytes(of); }
};

// "64KiB", "1MiB": names of the files of a class.
inline std::string class_name(Class of) {
  const uint64_t kib = block_bytes(of) / kKiB;
  return kib < 1024 ? std::to_string(kib) + "KiB" : std::to_string(kib / 1024) + "MiB";
}

}  // namespace ff::chunk
