// The format of FFRecord files (HFAiLab/ffrecord), whose names end with ".ffr": samples of any
// length with an index in front. Little-endian, without magic and padding:
//
//   offset     type     contents
//   0          u32      CRC-32 of the bytes from 4 to the end of the index; 0: not written
//   4          i64      number of samples, N
//   12         u32[N]   CRC-32 of each sample
//   12 + 4 N   i64[N]   offset of each sample in the file
//   12 + 12 N  bytes    the samples, one after the other; the last one ends where the file ends
//
// CRC-32 is that of zlib (IEEE 802.3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::record {

inline constexpr std::string_view kSuffix = ".ffr";

// The CRC-32 of some bytes followed by `bytes`; `before` is that of the former, 0 for none.
uint32_t crc32(uint32_t before, ByteView bytes);

// Bytes before the first sample.
uint64_t index_bytes(uint64_t samples);

struct RecordIndex {
  std::vector<uint32_t> checksums;
  std::vector<uint64_t> offsets;  // of each sample, then the size of the file
  bool checked = true;  // false: written without a CRC, so that a damaged index is not noticed

  uint64_t samples() const { return checksums.size(); }
  uint64_t bytes_of(uint64_t sample) const { return offsets[sample + 1] - offsets[sample]; }
};

// Errc::corrupt: not an FFRecord file, or a damaged or unfinished one.
Result<RecordIndex> read_index(io::File& file);
// The bytes before the first sample of a file with these samples.
std::string encode_index(const RecordIndex& index);

}  // namespace ff::record
