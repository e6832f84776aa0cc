// MemoryFile: ranges across parts, empty parts, ranges at its begin and end.
#include "platform/io/memory_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ff::io {
namespace {

ByteSpan span_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

class MemoryFileTest : public testing::Test {
 protected:
  std::string a_ = "abc", none_, b_ = "d", c_ = "efgh";
  MemoryFile file_{"memory",
                   {span_of(a_), span_of(none_), span_of(b_), span_of(none_), span_of(c_)}};

  std::string read(uint64_t offset, size_t length) {
    std::string text(length, '.');
    const auto got = file_.read_at(span_of(text), offset);
    EXPECT_TRUE(got.ok());
    text.resize(*got);
    return text;
  }
};

TEST_F(MemoryFileTest, ReadsAcrossParts) {
  for (size_t from = 0; from <= 9; from++) {
    for (size_t length = 0; length <= 9; length++) {
      const std::string want = from < 8 ? std::string("abcdefgh").substr(from, length) : "";
      EXPECT_EQ(read(from, length), want) << from << " " << length;
    }
  }
  EXPECT_EQ(file_.info()->size, 8u);
}

TEST_F(MemoryFileTest, ReadCachedHasAllOrFails) {
  std::string text(5, '.');
  ASSERT_TRUE(file_.read_cached(span_of(text), 2).value());
  EXPECT_EQ(text, "cdefg");
  EXPECT_FALSE(file_.read_cached(span_of(text), 4).ok());
}

TEST_F(MemoryFileTest, WritesAndZeros) {
  ASSERT_TRUE(file_.write_at(as_bytes("CDEF"), 2).ok());
  EXPECT_EQ(a_ + b_ + c_, "abCDEFgh");
  ASSERT_TRUE(file_.punch_hole(1, 4).ok());
  EXPECT_EQ(a_ + b_ + c_, std::string("a\0\0\0\0Fgh", 8));
  EXPECT_FALSE(file_.write_at(as_bytes("12"), 7).ok());
  EXPECT_FALSE(file_.punch_hole(8, 1).ok());
  EXPECT_TRUE(file_.write_at({}, 8).ok());
}

TEST_F(MemoryFileTest, KeepsItsSize) {
  EXPECT_TRUE(file_.truncate(8).ok());
  EXPECT_FALSE(file_.truncate(7).ok());
  EXPECT_EQ(file_.next_data(3)->begin, 3u);
  EXPECT_EQ(file_.next_data(30)->end, 8u);
}

}  // namespace
}  // namespace ff::io
