// CRC32C: published vectors, and every supported code path against a bit-by-bit reference.
#include "platform/simd/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/simd/crc32c_paths.h"

namespace ff::simd {
namespace {

// The definition: one bit at a time, on the register.
uint32_t bitwise(uint32_t crc, const unsigned char* data, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return crc;
}

std::vector<unsigned char> random_bytes(size_t size, Rng& rng) {
  std::vector<unsigned char> data(size);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(rng.next());
  return data;
}

uint32_t crc_of(const std::vector<unsigned char>& data) {
  return crc32c(std::as_bytes(std::span(data)));
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  // RFC 3720, B.4.
  std::vector<unsigned char> data(32, 0);
  EXPECT_EQ(crc_of(data), 0x8a9136aau);
  std::fill(data.begin(), data.end(), 0xff);
  EXPECT_EQ(crc_of(data), 0x62a8ab43u);
  for (unsigned char i = 0; i < 32; ++i) data[i] = i;
  EXPECT_EQ(crc_of(data), 0x46dd794eu);
  std::reverse(data.begin(), data.end());
  EXPECT_EQ(crc_of(data), 0x113fdb5cu);
  const std::vector<unsigned char> read_pdu = {
      0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
      0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0};
  EXPECT_EQ(crc_of(read_pdu), 0xd9963a56u);
}

class Crc32cEachPath : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!path().supported()) GTEST_SKIP() << "this CPU does not have " << path().name;
  }
  const Crc32cPath& path() const { return kCrc32cPaths[GetParam()]; }
};

TEST_P(Crc32cEachPath, EveryLengthUpTo1100AtEveryOffset) {
  SeededRng rng(3);
  const auto data = random_bytes(1100 + 64, rng);
  for (size_t offset = 0; offset < 64; ++offset) {
    uint32_t expected = 0x12345678;  // grows by a byte a step, so the reference stays linear
    for (size_t length = 0; length <= 1100; ++length) {
      ASSERT_EQ(path().run(0x12345678, data.data() + offset, length), expected)
          << "offset " << offset << " length " << length;
      if (length < 1100) expected = bitwise(expected, data.data() + offset + length, 1);
    }
  }
}

TEST_P(Crc32cEachPath, RandomLongBuffers) {
  SeededRng rng(4);
  for (int i = 0; i < 40; ++i) {
    const size_t length = rng.below(200'000);
    const size_t offset = rng.below(64);
    const auto seed = static_cast<uint32_t>(rng.next());
    SCOPED_TRACE(testing::Message() << "round " << i << " length " << length);
    const auto data = random_bytes(length + offset, rng);
    EXPECT_EQ(path().run(seed, data.data() + offset, length),
              bitwise(seed, data.data() + offset, length));
  }
}

TEST_P(Crc32cEachPath, NeverReadsBesideTheBuffer) {
  // Sanitizers detect an overrun; without them the result would depend on adjacent bytes.
  SeededRng rng(5);
  for (const size_t length : {1u, 7u, 63u, 255u, 257u, 767u, 769u, 4097u}) {
    const auto data = random_bytes(length, rng);
    auto framed = random_bytes(length + 128, rng);
    std::copy(data.begin(), data.end(), framed.begin() + 64);
    EXPECT_EQ(path().run(1, data.data(), length), path().run(1, framed.data() + 64, length));
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Crc32cEachPath, testing::Range<size_t>(0, kCrc32cPathCount),
                         [](const auto& each) {
                           std::string name = kCrc32cPaths[each.param].name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Crc32c, TakesTheFastestPathThisCpuHas) {
  const auto* first = std::find_if(std::begin(kCrc32cPaths), std::end(kCrc32cPaths),
                                   [](const Crc32cPath& path) { return path.supported(); });
  EXPECT_EQ(crc32c_path(), first->name);
  EXPECT_TRUE(kCrc32cPaths[kCrc32cPathCount - 1].supported());
}

TEST(Crc32c, ContinuesAcrossAnySplit) {
  SeededRng rng(6);
  const auto data = random_bytes(5000, rng);
  const ByteView bytes = std::as_bytes(std::span(data));
  const uint32_t whole = crc32c(bytes);
  for (size_t split = 0; split <= bytes.size(); split += split < 300 ? 1 : 97) {
    ASSERT_EQ(crc32c(bytes.subspan(split), crc32c(bytes.first(split))), whole) << split;
  }
}

TEST(Crc32c, CombineJoinsTwoParts) {
  SeededRng rng(7);
  const auto data = random_bytes(100'000, rng);
  const ByteView bytes = std::as_bytes(std::span(data));
  const uint32_t whole = crc32c(bytes);
  for (int i = 0; i < 300; ++i) {
    const size_t split = i == 0 ? 0 : i == 1 ? bytes.size() : rng.below(bytes.size());
    ASSERT_EQ(crc32c_combine(crc32c(bytes.first(split)), crc32c(bytes.subspan(split)),
                             bytes.size() - split),
              whole)
        << split;
  }
}

TEST(Crc32c, CombineTakesLengthsOf64Bits) {
  // Appending a then b zero bytes is appending a + b.
  SeededRng rng(8);
  for (int i = 0; i < 100; ++i) {
    const uint64_t a = rng.next() >> 1;
    const uint64_t b = rng.next() >> 1;
    const auto crc = static_cast<uint32_t>(rng.next());
    EXPECT_EQ(crc32c_combine(crc32c_combine(crc, 0, a), 0, b), crc32c_combine(crc, 0, a + b));
  }
}

TEST(Crc32c, FindsEverySingleFlippedBit) {
  SeededRng rng(9);
  auto data = random_bytes(1000, rng);
  const uint32_t good = crc_of(data);
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
    ASSERT_NE(crc_of(data), good) << bit;
    data[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace ff::simd
