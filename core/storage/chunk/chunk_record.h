// Encoding of metadata rows. Fields are little-endian without padding; the row has a CRC32C of its
// own (metadata.h).
//
//   record    u8 format: 3 if a version has units in the log, else 2
//             u8 flags: 1 there is a pending version
//             version          the committed version; version number 0: none
//             u64 chain version, i64 removed: wall clock in ns of a tombstone, else 0
//             version, u64 client, u64 channel, u64 sequence        with flag 1
//   version   u64 version, u32 length, u32 checksum, u8 flags: 1 removed, 2 block, 4 overlays, 8
//   units in the log
//             u8 class, u32 number                                  with 2: the block
//             u8 class, u32 number, u8 n,                           with 4: the overlay block
//             n × (u8 unit, u8 slot, u32 CRC32C)
//             u16 n, n × (u8 unit, u32 CRC32C, u64 LSN of the data)     with 8
//             Only undo rows have these; those of the present versions are rows of their own:
//   logged    u8 flags: 1 committed, 2 pending, 4 there is data in the log of the pending version
//             u32 CRC32C, u64 LSN                  with 1: of the committed version
//             u64 version                          with 2: of the pending version, if it differs
//             u32 CRC32C, u64 LSN                  with 4
//             After the commit of that version, its part is that of the committed version.
//
//   result    u64 sequence, u64 inode, u64 index, u64 version, u64 length, u32 checksum,
//             u8 flags: 1 committed, 2 removed; i64 used: wall clock in ns           (53 bytes)
//   target    u64 chain, u64 state, u8 flags: 1 being removed, 2 power lost          (17 bytes)
//
// Units ascend; slots are indices in the overlay block. Decoders accept exactly what the encoders
// write and the disk layout allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

// Checksum unit `unit` of a chunk is stored in slot `slot` of the overlay block. The CRC is part of
// this row, so that a small overwrite writes its data and one row.
struct Overlay {
  uint8_t unit = 0;
  uint8_t slot = 0;
  uint32_t crc = 0;  // of the bytes up to the end of the chunk
  bool operator==(const Overlay&) const = default;
};

// The newest data of checksum unit `unit` is in the log of the metadata, not yet in its block.
struct LoggedUnit {
  uint8_t unit = 0;
  uint32_t crc = 0;  // of the bytes up to the end of the chunk
  uint64_t lsn = 0;  // of the first of these bytes
  bool operator==(const LoggedUnit&) const = default;
};

struct VersionRecord {
  VersionState state;
  std::optional<BlockLocation> block;  // nothing when the length is 0
  std::optional<BlockLocation> overlay_block;
  std::vector<Overlay> overlays;
  std::vector<LoggedUnit> logged = {};  // ascending
  bool operator==(const VersionRecord&) const = default;
};

struct ChunkRecord {
  struct Pending {
    VersionRecord version;
    RequestId request_id;
    bool operator==(const Pending&) const = default;
  };
  VersionRecord committed;
  uint64_t chain_version = 0;
  int64_t removed_ns = 0;
  std::optional<Pending> pending;
  bool operator==(const ChunkRecord&) const = default;
};

// The row of one checksum unit of a chunk.
struct LoggedRecord {
  struct Pending {
    uint64_t version = 0;
    std::optional<LoggedUnit> data;  // nothing: the unit of that version is not in the log
    bool operator==(const Pending&) const = default;
  };
  std::optional<LoggedUnit> committed;
  std::optional<Pending> pending;  // nothing: as the committed version
  bool operator==(const LoggedRecord&) const = default;
};

struct TargetRecord {
  uint64_t chain = 0;
  uint64_t state = 0;       // set by the owner
  bool removing = false;    // being removed: first its chunks, then this row
  bool power_lost = false;  // a power loss may have dropped updates since `state` was set
  bool operator==(const TargetRecord&) const = default;
};

// Maximum size of a data file; block numbers fit 32 bits.
constexpr uint64_t kFileMax = uint64_t{1} << 48;
static_assert(kFileMax / kBlockMin <= uint64_t{1} << 32);

std::string encode(const ChunkRecord& record);
std::string encode(const LoggedRecord& unit);
std::string encode(const ChannelResult& result);
std::string encode(const TargetRecord& target);
// Errors: corrupt; newer_format (a record of a newer format).
Result<ChunkRecord> decode_record(std::string_view bytes);
Result<LoggedRecord> decode_logged(uint8_t unit, std::string_view bytes);
Result<ChannelResult> decode_result(std::string_view bytes);
Result<TargetRecord> decode_target(std::string_view bytes);

}  // namespace ff::chunk
