// Encoding of rows: round trips, and rejection of rows that violate a rule.
#include "storage/chunk/chunk_record.h"

#include <gtest/gtest.h>

#include "platform/io/test_bytes.h"
#include "storage/chunk/metadata.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

ChunkRecord full_record() {
  ChunkRecord record;
  record.committed = {
      .state = {.version = 7, .length = kMiB - 5, .checksum = 0x12345678},
      .block = BlockLocation{.size_class = 4, .number = kFileMax / kMiB - 1},
      .overlay_block = BlockLocation{.size_class = 2, .number = 9},
      .overlays = {{.unit = 3, .slot = 63, .crc = 7}, {.unit = 255, .slot = 0, .crc = ~0u}},
      .logged = {{.unit = 0, .crc = 5, .lsn = 77}, {.unit = 254, .crc = 6, .lsn = UINT64_MAX}}};
  record.chain_version = 99;
  record.pending = ChunkRecord::Pending{
      .version = {.state = {.version = 8, .length = 0, .checksum = 0, .removed = true},
                  .block = {},
                  .overlay_block = {},
                  .overlays = {}},
      .request_id = {.client = UINT64_MAX, .channel = 2, .sequence = 3}};
  return record;
}

TEST(ChunkRecord, RoundTrips) {
  const ChunkRecord record = full_record();
  const auto back = decode_record(encode(record));
  ASSERT_TRUE(ok(back));
  EXPECT_EQ(*back, record);
  ChunkRecord tombstone;
  tombstone.committed.state = {.version = 3, .length = 0, .checksum = 0, .removed = true};
  tombstone.removed_ns = -5;
  EXPECT_EQ(*decode_record(encode(tombstone)), tombstone);
  // A row without units in the log is one of disk format 2.
  EXPECT_EQ(encode(record)[0], 3);
  EXPECT_EQ(encode(tombstone)[0], 2);
  const LoggedUnit unit{.unit = 9, .crc = 1, .lsn = 2};
  for (const LoggedRecord& logged :
       {LoggedRecord{.committed = unit, .pending = {}},
        LoggedRecord{.committed = {}, .pending = LoggedRecord::Pending{.version = 3, .data = unit}},
        LoggedRecord{.committed = unit,
        .pending = LoggedRecord::Pending{.version = 3, .data = {}}}}) {
    EXPECT_EQ(*decode_logged(9, encode(logged)), logged);
  }
  const ChannelResult result{.sequence = 1,
                             .id = {.inode = 2, .index = 3},
                             .state = {.version = 4, .length = 5, .checksum = 6, .removed = true},
                             .committed = true,
                             .used_ns = 7};
  EXPECT_EQ(encode(result).size(), 53u);
  EXPECT_EQ(*decode_result(encode(result)), result);
  const TargetRecord target{.chain = 1, .state = 2, .removing = true, .power_lost = true};
  EXPECT_EQ(encode(target).size(), 17u);
  EXPECT_EQ(*decode_target(encode(target)), target);
}

TEST(ChunkRecord, CutAndLongerRowsAreCorrupt) {
  const std::string row = encode(full_record());
  for (size_t size = 0; size < row.size(); ++size) {
    EXPECT_EQ(code_of(decode_record(row.substr(0, size))), Errc::corrupt) << size;
  }
  EXPECT_EQ(code_of(decode_record(row + "x")), Errc::corrupt);
  EXPECT_EQ(code_of(decode_result("")), Errc::corrupt);
  EXPECT_EQ(code_of(decode_logged(0, "")), Errc::corrupt);
  EXPECT_EQ(code_of(decode_logged(0, std::string(1, '\4') + std::string(12, 'x'))), Errc::corrupt);
  EXPECT_EQ(code_of(decode_target(std::string(18, '\0'))), Errc::corrupt);
}

TEST(ChunkRecord, RowsThatBreakARuleAreCorrupt) {
  using Break = void (*)(ChunkRecord&);
  const Break breaks[] = {
      [](ChunkRecord& r) { r.committed.state.length = kMiB + 1; },    // longer than its block
      [](ChunkRecord& r) { r.committed.state.length = 0; },           // a block without bytes
      [](ChunkRecord& r) { r.committed.block.reset(); },              // bytes without a block
      [](ChunkRecord& r) { r.committed.state.removed = true; },       // removed but has data
      [](ChunkRecord& r) { r.committed.overlays[1].unit = 3; },       // not ascending
      [](ChunkRecord& r) { r.committed.overlays[1].slot = 63; },      // a slot twice
      [](ChunkRecord& r) { r.committed.overlays[0].slot = 64; },      // no such slot
      [](ChunkRecord& r) { r.committed.state.length = 255 * 4096; },  // an overlay behind the end
      [](ChunkRecord& r) { r.committed.logged[0].unit = 254; },       // not ascending
      [](ChunkRecord& r) {
        r.committed.logged[1].unit = 255;
        r.committed.overlays.pop_back();
        r.committed.state.length = 254 * 4096;
      },                                                                  // a unit behind the end
      [](ChunkRecord& r) { r.committed.overlay_block->size_class = 3; },  // wrong size class
      [](ChunkRecord& r) { ++r.committed.block->number; },                // beyond the largest file
      [](ChunkRecord& r) { r.committed.block->size_class = kSizeClasses; },  // invalid size class
      [](ChunkRecord& r) { r.pending->version.state.version = 9; },          // skips a version
      [](ChunkRecord& r) { r = ChunkRecord(); },                             // absent
  };
  for (size_t i = 0; i < std::size(breaks); ++i) {
    ChunkRecord record = full_record();
    breaks[i](record);
    EXPECT_EQ(code_of(decode_record(encode(record))), Errc::corrupt) << i;
  }
}

TEST(ChunkRecord, ANewerFormatIsSaidToBeOne) {
  std::string row = encode(full_record());
  row[0] = 4;
  EXPECT_EQ(code_of(decode_record(row)), Errc::newer_format);
}

TEST(ChunkRecord, KeysAscendAsTheirNumbers) {
  const std::string low = key_of(RowKind::chunk, {1, 255, 256});
  const std::string high = key_of(RowKind::chunk, {1, 256, 0});
  EXPECT_LT(low, high);
  EXPECT_LT(high, key_of(RowKind::chunk, {2, 0, 0}));
  EXPECT_EQ(*numbers_of(low, 3), (std::vector<uint64_t>{1, 255, 256}));
  EXPECT_FALSE(numbers_of(low, 2).has_value());
  EXPECT_FALSE(numbers_of("", 0).has_value());
}

}  // namespace
}  // namespace ff::chunk
