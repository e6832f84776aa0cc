// What the metadata holds of one chunk, as bytes. The fields are little-endian and follow one
// another without gaps; the row around them carries a CRC32C (metadata.h).
//
//   record    u8 format = 2, u8 flags: 1 there is a pending version
//             image            the committed version; version 0: none
//             u64 chain version, i64 removed: wall clock in ns of a tombstone, else 0
//             image, u64 client, u64 channel, u64 sequence          with flag 1
//   image     u64 version, u32 length, u32 checksum, u8 flags: 1 removed, 2 block, 4 pieces
//             u8 class, u32 number                                  with 2: the block
//             u8 class, u32 number, u8 n,                           with 4: its replaced pieces
//             n × (u8 granule, u8 slot, u32 CRC32C)
//
//   result    u64 sequence, u64 inode, u64 index, u64 version, u64 length, u32 checksum,
//             u8 flags: 1 committed, 2 removed; i64 used: wall clock in ns           (53 bytes)
//   target    u64 chain, u64 state, u8 flags: 1 being removed, 2 lossy               (17 bytes)
//
// Granules ascend; the slots are places in the second block. Decoders accept exactly what encoders
// write and the disk's layout allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

// Granule `granule` of a chunk lies in slot `slot` of its second block. Its checksum is here: a
// small overwrite writes its bytes and one row.
struct Piece {
  uint8_t granule = 0;
  uint8_t slot = 0;
  uint32_t crc = 0;  // of its bytes, up to the end of the chunk
  bool operator==(const Piece&) const = default;
};

struct ImageRecord {
  VersionState state;
  std::optional<Place> block;  // none when the length is 0
  std::optional<Place> piece_block;
  std::vector<Piece> pieces;
  bool operator==(const ImageRecord&) const = default;
};

struct Record {
  struct Pending {
    ImageRecord image;
    Writer writer;
    bool operator==(const Pending&) const = default;
  };
  ImageRecord committed;
  uint64_t chain_version = 0;
  int64_t removed_ns = 0;
  std::optional<Pending> pending;
  bool operator==(const Record&) const = default;
};

struct TargetRecord {
  uint64_t chain = 0;
  uint64_t state = 0;     // the owner's
  bool removing = false;  // its chunks go, then it
  bool lossy = false;     // power was lost since the owner has set the state
  bool operator==(const TargetRecord&) const = default;
};

// No file of a class is longer: block numbers fit 32 bits up to 256 TiB of the smallest blocks.
constexpr uint64_t kFileMax = uint64_t{1} << 48;
static_assert(kFileMax / kBlockMin <= uint64_t{1} << 32);

std::string encode(const Record& record);
std::string encode(const ChannelResult& result);
std::string encode(const TargetRecord& target);
// Errors: corrupt; newer_format for a record of another format.
Result<Record> decode_record(std::string_view bytes);
Result<ChannelResult> decode_result(std::string_view bytes);
Result<TargetRecord> decode_target(std::string_view bytes);

}  // namespace ff::chunk
