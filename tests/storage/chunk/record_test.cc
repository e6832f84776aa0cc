// Rows as bytes: what is written is read back, and what breaks a rule is refused.
#include "storage/chunk/record.h"

#include <gtest/gtest.h>

#include "platform/io/test_bytes.h"
#include "storage/chunk/metadata.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

Record full_record() {
  Record record;
  record.committed = {
      .state = {.version = 7, .length = kMiB - 5, .checksum = 0x12345678},
      .block = Place{.of = 4, .number = kFileMax / kMiB - 1},
      .piece_block = Place{.of = 2, .number = 9},
      .pieces = {{.granule = 3, .slot = 63, .crc = 7}, {.granule = 255, .slot = 0, .crc = ~0u}}};
  record.chain_version = 99;
  record.pending = Record::Pending{
      .image = {.state = {.version = 8, .length = 0, .checksum = 0, .removed = true},
                .block = {},
                .piece_block = {},
                .pieces = {}},
      .writer = {.client = UINT64_MAX, .channel = 2, .sequence = 3}};
  return record;
}

TEST(ChunkRecord, RoundTrips) {
  const Record record = full_record();
  const auto back = decode_record(encode(record));
  ASSERT_TRUE(ok(back));
  EXPECT_EQ(*back, record);
  Record tombstone;
  tombstone.committed.state = {.version = 3, .length = 0, .checksum = 0, .removed = true};
  tombstone.removed_ns = -5;
  EXPECT_EQ(*decode_record(encode(tombstone)), tombstone);
  const ChannelResult result{.sequence = 1,
                             .id = {.inode = 2, .index = 3},
                             .image = {.version = 4, .length = 5, .checksum = 6, .removed = true},
                             .committed = true,
                             .used_ns = 7};
  EXPECT_EQ(encode(result).size(), 53u);
  EXPECT_EQ(*decode_result(encode(result)), result);
  const TargetRecord target{.chain = 1, .state = 2, .removing = true, .lossy = true};
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
  EXPECT_EQ(code_of(decode_target(std::string(18, '\0'))), Errc::corrupt);
}

TEST(ChunkRecord, RowsThatBreakARuleAreCorrupt) {
  using Break = void (*)(Record&);
  const Break breaks[] = {
      [](Record& r) { r.committed.state.length = kMiB + 1; },    // longer than its block
      [](Record& r) { r.committed.state.length = 0; },           // a block for nothing
      [](Record& r) { r.committed.block.reset(); },              // bytes nowhere
      [](Record& r) { r.committed.state.removed = true; },       // removed, and there
      [](Record& r) { r.committed.pieces[1].granule = 3; },      // not ascending
      [](Record& r) { r.committed.pieces[1].slot = 63; },        // a slot twice
      [](Record& r) { r.committed.pieces[0].slot = 64; },        // no such slot
      [](Record& r) { r.committed.state.length = 255 * 4096; },  // a piece behind the end
      [](Record& r) { r.committed.piece_block->of = 3; },        // of another class
      [](Record& r) { ++r.committed.block->number; },            // in no file
      [](Record& r) { r.committed.block->of = kClasses; },       // no such class
      [](Record& r) { r.pending->image.state.version = 9; },     // one left out
      [](Record& r) { r = Record(); },                           // absent
  };
  for (size_t i = 0; i < std::size(breaks); ++i) {
    Record record = full_record();
    breaks[i](record);
    EXPECT_EQ(code_of(decode_record(encode(record))), Errc::corrupt) << i;
  }
}

TEST(ChunkRecord, ANewerFormatIsSaidToBeOne) {
  std::string row = encode(full_record());
  row[0] = 3;
  EXPECT_EQ(code_of(decode_record(row)), Errc::newer_format);
}

TEST(ChunkRecord, KeysAscendAsTheirNumbers) {
  const std::string low = key_of(Table::chunk, {1, 255, 256});
  const std::string high = key_of(Table::chunk, {1, 256, 0});
  EXPECT_LT(low, high);
  EXPECT_LT(high, key_of(Table::chunk, {2, 0, 0}));
  EXPECT_EQ(*numbers_of(low, 3), (std::vector<uint64_t>{1, 255, 256}));
  EXPECT_FALSE(numbers_of(low, 2).has_value());
  EXPECT_FALSE(numbers_of("", 0).has_value());
}

}  // namespace
}  // namespace ff::chunk
