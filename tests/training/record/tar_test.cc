// Tar archives and names of samples: what programs write is in tests/e2e/record_test.cc; here are
// headers that they write seldom, and damaged and hostile ones.
#include "training/record/tar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "platform/base/clock.h"
#include "platform/io/memory_file.h"
#include "training/record/names.h"
#include "training/record/tar_blocks.h"

namespace ff::record {
namespace {

class TarTest : public testing::Test {
 protected:
  Result<TarMembers> read(std::string content) {
    const ByteSpan memory(reinterpret_cast<std::byte*>(content.data()), content.size());
    io::MemoryFile file("a.tar", {memory});
    return read_tar(file, stop_);
  }
  // "NAME:BYTES" of each file, and what it holds.
  std::string files(const std::string& content) {
    const auto found = read(content);
    if (!found) return found.error().message;
    std::string out;
    for (const auto& member : found->files) {
      out += fmt::format("{}={};", member.name, content.substr(member.begin, member.bytes));
    }
    return out + std::to_string(found->left_out);
  }
  void fails(const std::string& content, const std::string& text) {
    const auto found = read(content);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_NE(found.error().message.find(text), std::string::npos) << found.error().message;
  }

  SystemClock clock_;
  StopToken stop_{clock_};
  const std::string end_ = std::string(1024, '\0');
};

TEST_F(TarTest, FilesOfAllFormats) {
  const std::string deep = std::string(120, 'd') + "/" + std::string(90, 'f');
  EXPECT_EQ(
      files(tar_entry("./a", '0', "one") + tar_entry("dir/", '5', "") +
            tar_entry("dir/b", '\0', "") + tar_entry("link", '2', "") + tar_entry("hard", '1', "") +
            tar_entry("fifo", '6', "") + tar_entry("contiguous", '7', "x") + end_),
      "a=one;dir/b=;contiguous=x;3");
  EXPECT_EQ(files(tar_entry("@LongLink", 'L', deep + '\0') + tar_entry("short", '0', "long") +
                  tar_entry("next", '0', "n") + end_),
            deep + "=long;next=n;0");
  const std::string path = fmt::format("path={}\n", deep);
  const std::string record = fmt::format("{} {}", path.size() + 4, path);
  EXPECT_EQ(files(tar_entry("g", 'g', "11 a=b c d\n") + tar_entry("x", 'x', record) +
                  tar_entry("short", '0', "pax") + tar_entry("next", '0', "n") + end_),
            deep + "=pax;next=n;0");
  EXPECT_EQ(files(tar_entry("x", 'x', "10 size=3\n") + tar_entry("a", '0', "abc", 0) + end_),
            "a=abc;0");
  EXPECT_EQ(files(tar_entry("a", '0', "1") + end_ + tar_entry("b", '0', "2") + end_ + end_),
            "a=1;b=2;0");
  EXPECT_EQ(files(end_), "0");
}

TEST_F(TarTest, DamagedAndHostileArchives) {
  const std::string good = tar_entry("a", '0', std::string(600, 'x')) + end_;
  EXPECT_TRUE(read(good).ok());
  for (size_t size = 0; size < good.size() - 1024 + 512; size++) {
    EXPECT_FALSE(read(good.substr(0, size)).ok()) << size;
  }
  std::string flipped = good;
  flipped[3] ^= 1;
  fails(flipped, "does not match its checksum");
  fails("", "no end mark");
  fails(std::string("\x1f\x8b", 2) + good, "compressed");
  fails(tar_entry("a", 'S', "x") + end_, "sparse");
  fails(tar_entry("x", 'x', "22 GNU.sparse.major=1\n") + end_, "sparse");
  fails(tar_entry("a", '0', "x", 1 << 20) + end_, "cut off");
  fails(tar_entry("a", 'L', "x", 1 << 30) + end_, "too long");
  for (const char* record :
       {"0 a=b\n", "3 a", "99 a=b\n", "x a=b\n", "5 ab\n", "18446744073709551616 a=b\n"}) {
    fails(tar_entry("x", 'x', record) + end_, "an extended header");
  }
  std::string huge = tar_entry("a", '0', "");
  huge[124] = '\x80';  // a binary number of 2^62 and more
  std::fill(huge.begin() + 125, huge.begin() + 136, '\xff');
  fails(tar_sealed(huge) + end_, "too large");
  huge[128] = huge[127] = huge[126] = huge[125] = '\0';
  fails(tar_sealed(huge) + end_, "");
}

TEST(RecordNames, EachLineIsAName) {
  const std::vector<std::string> names = {"a/b.jpg", "", "new\nline", "back\\slash\\n", "\xff"};
  const std::string content = encode_names(names);
  EXPECT_EQ(std::ranges::count(content, '\n'), 5);
  EXPECT_EQ(decode_names(content, 5), names);
  for (const uint64_t samples : {0U, 4U, 6U}) {
    EXPECT_FALSE(decode_names(content, samples).has_value());
  }
  EXPECT_FALSE(decode_names("a\\x\n", 1).has_value());
  EXPECT_FALSE(decode_names("a", 1).has_value());
  EXPECT_FALSE(decode_names("a\\", 1).has_value());
}

}  // namespace
}  // namespace ff::record
