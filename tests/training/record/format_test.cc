// FFRecord files byte for byte, and files that are damaged, unfinished, or something else.
#include "training/record/format.h"

#include <gtest/gtest.h>

#include <string>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/files.h"
#include "platform/sim/sim_disk.h"
#include "training/record/writer.h"

namespace ff::record {
namespace {

// What ffrecord's FileWriter writes for the samples "hello", "" and "ab": the CRC-32 are those of
// zlib.
const std::string kKnown = [] {
  std::string index;
  append_le<int64_t>(index, 3);
  append_le<uint32_t>(index, 0x3610a686);  // zlib.crc32(b"hello")
  append_le<uint32_t>(index, 0);           // zlib.crc32(b"")
  append_le<uint32_t>(index, 0x9e83486d);  // zlib.crc32(b"ab")
  for (const int64_t offset : {48, 53, 53}) append_le(index, offset);
  std::string file;
  append_le<uint32_t>(file, crc32(0, as_bytes(index)));
  return file + index + "helloab";
}();

class RecordFormat : public testing::Test {
 protected:
  Result<RecordIndex> read(const std::string& content) {
    EXPECT_TRUE(io::replace_file(disk_, "a.ffr", content, "test").ok());
    auto file = disk_.open("a.ffr", {});
    return read_index(**file);
  }
  std::string cause(const std::string& content) {
    const auto index = read(content);
    EXPECT_FALSE(index.ok());
    if (index) return "";
    EXPECT_EQ(index.error().code, Errc::corrupt);
    return index.error().message;
  }

  SystemClock clock_;
  sim::SimDisk disk_{1, clock_};
  SeededRng rng_{1};
};

TEST_F(RecordFormat, CrcIsThatOfZlib) {
  EXPECT_EQ(crc32(0, as_bytes("123456789")), 0xcbf43926);  // the check value of CRC-32
  EXPECT_EQ(crc32(crc32(0, as_bytes("1234")), as_bytes("56789")), 0xcbf43926);
}

TEST_F(RecordFormat, AFileOfOthersIsRead) {
  const auto index = read(kKnown);
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_TRUE(index->checked);
  EXPECT_EQ(index->samples(), 3u);
  EXPECT_EQ(index->offsets, (std::vector<uint64_t>{48, 53, 53, 55}));
  EXPECT_EQ(index->bytes_of(0), 5u);
  EXPECT_EQ(index->bytes_of(1), 0u);
  EXPECT_EQ(index->bytes_of(2), 2u);
}

TEST_F(RecordFormat, WritesTheSameBytes) {
  auto writer = Writer::create(disk_, rng_, "w.ffr", 3, false);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add(as_bytes("hello")).ok());
  ASSERT_TRUE((*writer)->add({}).ok());
  ASSERT_TRUE((*writer)->append(as_bytes("a")).ok());
  ASSERT_TRUE((*writer)->append(as_bytes("b")).ok());
  ASSERT_TRUE((*writer)->end_sample().ok());
  ASSERT_TRUE((*writer)->finish().ok());
  EXPECT_EQ(*io::read_file(disk_, "w.ffr", kMiB), kKnown);
}

TEST_F(RecordFormat, AnIndexWithoutItsCrcIsReadAndMarked) {
  const auto index = read(std::string(4, '\0') + kKnown.substr(4));
  ASSERT_TRUE(index.ok());
  EXPECT_FALSE(index->checked);
  EXPECT_EQ(index->samples(), 3u);
}

TEST_F(RecordFormat, EachFlippedBitOfTheIndexIsFound) {
  for (size_t at = 0; at < 48; at++) {
    for (int bit = 0; bit < 8; bit++) {
      std::string damaged = kKnown;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      EXPECT_FALSE(read(damaged).ok()) << at << " " << bit;
    }
  }
}

TEST_F(RecordFormat, CutFilesAreRefusedOrAreShorter) {
  for (size_t size = 0; size < 48; size++) EXPECT_NE(cause(kKnown.substr(0, size)), "");
  EXPECT_NE(cause(kKnown.substr(0, 52)), "");    // before the offset of the last sample
  EXPECT_TRUE(read(kKnown.substr(0, 54)).ok());  // the sample does not match its CRC, then
}

// What ffrecord leaves when a program ends before close(): zeros, then samples.
TEST_F(RecordFormat, AnUnfinishedFileIsRefused) {
  const std::string message = cause(std::string(48, '\0') + "helloab");
  EXPECT_NE(message.find("the index is empty, but data follows"), std::string::npos) << message;
}

// Without a CRC, the index itself must be possible.
TEST_F(RecordFormat, AnImpossibleIndexIsRefused) {
  const auto with = [](size_t at, int64_t value) {
    std::string content = std::string(4, '\0') + kKnown.substr(4);
    std::string bytes;
    append_le(bytes, value);
    return content.replace(at, 8, bytes);
  };
  for (const int64_t count : {int64_t{-1}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    EXPECT_NE(cause(with(4, count)).find("longer than the file"), std::string::npos) << count;
  }
  EXPECT_NE(cause(with(24, 47)).find("sample 0 is outside"), std::string::npos);
  EXPECT_NE(cause(with(32, 47)).find("sample 1 is outside"), std::string::npos);
  EXPECT_NE(cause(with(40, 56)).find("sample 2 is outside"), std::string::npos);
  EXPECT_NE(cause(with(40, -1)).find("sample 2 is outside"), std::string::npos);
}

TEST_F(RecordFormat, AnEmptyFileHasNoSamples) {
  auto writer = Writer::create(disk_, rng_, "w.ffr", 0, false);
  ASSERT_TRUE(writer.ok() && (*writer)->finish().ok());
  const auto index = read(*io::read_file(disk_, "w.ffr", kMiB));
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->samples(), 0u);
}

}  // namespace
}  // namespace ff::record
