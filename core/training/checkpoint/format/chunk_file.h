// A chunk file: one content-addressed, immutable block of checkpoint data.
//
//   offset  size  field
//        0     8  magic "FFCHUNK1"
//        8     4  head CRC32C, over bytes 0..4095 with this field as zero
//       12     1  codec: 0 raw, 1 zstd
//       13     1  digest kind: 1 xxh128, 2 sha256
//       14     2  zero
//       16     8  raw length: bytes of data, 1 .. 4 MiB
//       24     8  stored length: bytes after the head (raw: the same)
//       32     4  CRC32C of the data
//       36     4  CRC32C of the stored bytes (raw: the same)
//       40    32  digest of the data; the file's name is its hex (xxh128 uses 16 bytes)
//       72  4024  zero
//     4096     n  stored bytes
//              -  zeros to the next multiple of 4096; the file ends there
//
// The head is a whole block, so that data is written and read with direct I/O from aligned memory.
// All integers are little-endian. Every byte is covered: head by its CRC, stored bytes by theirs,
// padding must be zero.
#pragma once

#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/simd/digest.h"

namespace ff::checkpoint {

constexpr uint64_t kChunkBytes =
    4 * kMiB;  // most data of a chunk; tensors are cut at multiples of it
constexpr uint64_t kHeadBytes = 4096;
constexpr uint64_t kChunkFileMax = kHeadBytes + kChunkBytes;  // stored is never longer than raw
constexpr std::string_view kChunkMagic = "FFCHUNK1";

enum class Codec : uint8_t { raw = 0, zstd = 1 };

struct ChunkHead {
  Codec codec = Codec::raw;
  uint64_t raw_length = 0;
  uint64_t stored_length = 0;
  uint32_t raw_crc = 0;
  uint32_t stored_crc = 0;
  simd::Digest digest;

  uint64_t file_length() const;  // head + stored bytes + padding
};

// Writes kHeadBytes at `at`.
void encode_head(const ChunkHead& head, std::byte* at);
// Errc::corrupt with the reason ("head CRC32C mismatch", ...) when the head is damaged.
Result<ChunkHead> decode_head(ByteView block);

// Checks a whole chunk file against its head and name and returns its data: a view into `file` for
// raw chunks, into `scratch` (at least kChunkBytes) for compressed ones. With `deep` it computes
// the digest again; else the CRC32C is enough. Errc::corrupt with the reason, without the name.
Result<ByteView> open_chunk(ByteView file, const simd::Digest& name, ByteSpan scratch, bool deep);

// Compresses `data` with zstd level 1 into `into`; returns the length, or 0 when that saves less
// than a tenth.
size_t compress_chunk(ByteView data, ByteSpan into);

}  // namespace ff::checkpoint
