// Wire types: every supported code path against plain definitions, bit for bit. The reference
// implements MXFP8 from the description in wire.h, in doubles, by searching all E4M3 numbers.
#include "platform/simd/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/simd/reduce.h"
#include "platform/simd/reduce_paths.h"

namespace ff::simd {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Magnitudes of E4M3 by their codes: 0 to 0x7e, which is 448.
const std::array<double, 127>& magnitudes() {
  static const auto all = [] {
    std::array<double, 127> made;
    for (int code = 0; code < 127; code++) {
      const int exponent = code / 8, fraction = code % 8;
      made[static_cast<size_t>(code)] =
          exponent > 0 ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
    }
    return made;
  }();
  return all;
}

uint8_t plain_code(double value) {
  if (!std::isfinite(value)) return 0x7f;
  const auto& all = magnitudes();
  const double wanted = std::fabs(value);
  auto code = static_cast<size_t>(std::ranges::upper_bound(all, wanted) - all.begin()) - 1;
  if (code + 1 < all.size()) {
    const double down = wanted - all[code], up = all[code + 1] - wanted;
    if (up < down || (up == down && code % 2 == 1)) code++;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

// The scale at which all values except infinities and NaN are at most 448 times the scale.
int plain_exponent(const float* block, size_t count) {
  double amax = 0;
  for (size_t i = 0; i < count; i++) {
    if (std::isfinite(block[i])) amax = std::max(amax, std::fabs(double{block[i]}));
  }
  if (amax == 0) return 0;
  int exponent = -127;
  while (amax > std::ldexp(448, exponent)) exponent++;
  return exponent;
}

Bytes plain_encoded(const Floats& floats) {
  Bytes elements, scales;
  for (size_t at = 0; at < floats.size(); at += 32) {
    const size_t count = std::min<size_t>(32, floats.size() - at);
    const int exponent = plain_exponent(&floats[at], count);
    scales.push_back(static_cast<std::byte>(exponent + 127));
    for (size_t i = at; i < at + count; i++) {
      elements.push_back(
          static_cast<std::byte>(plain_code(std::ldexp(double{floats[i]}, -exponent))));
    }
  }
  elements.insert(elements.end(), scales.begin(), scales.end());
  return elements;
}

float plain_decoded(uint8_t code, uint8_t scale) {
  if ((code & 0x7f) == 0x7f || scale == 0xff) return kNan;
  const double magnitude = std::ldexp(magnitudes()[code & 0x7f], scale - 127);
  return static_cast<float>((code & 0x80) != 0 ? -magnitude : magnitude);
}

Floats plain_decoded(const Bytes& bytes, size_t count) {
  Floats floats;
  for (size_t i = 0; i < count; i++) {
    floats.push_back(
        plain_decoded(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[count + i / 32])));
  }
  return floats;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

class WireTest : public testing::TestWithParam<size_t> {
 protected:
  static constexpr size_t kAround = 64;
  static constexpr std::byte kMark{0xa5};

  void SetUp() override {
    if (!path().supported()) GTEST_SKIP() << "this CPU has no " << path().name;
  }
  const ReducePath& path() const { return kReducePaths[GetParam()]; }

  // By this path, from and to places `shift` off the others; what is around stays.
  Bytes encoded(WireType wire, const Floats& floats, size_t shift = 0) {
    Bytes from(floats.size() * sizeof(float) + shift);
    if (!floats.empty()) std::memcpy(from.data() + shift, floats.data(), from.size() - shift);
    const size_t bytes = wire_bytes(wire, floats.size());
    Bytes room(bytes + 2 * kAround, kMark);
    std::byte* const into = room.data() + kAround - shift;
    encode_with(path(), wire, reinterpret_cast<const float*>(from.data() + shift), floats.size(),
                into);
    expect_kept(room, kAround - shift, bytes);
    return {into, into + bytes};
  }
  Floats decoded(WireType wire, const Bytes& bytes, size_t count, size_t shift = 0) {
    Bytes from(bytes.size() + shift);
    std::ranges::copy(bytes, from.begin() + static_cast<ptrdiff_t>(shift));
    Bytes room(count * sizeof(float) + 2 * kAround, kMark);
    std::byte* const into = room.data() + kAround - shift;
    decode_with(path(), wire, from.data() + shift, count, reinterpret_cast<float*>(into));
    expect_kept(room, kAround - shift, count * sizeof(float));
    Floats floats(count);
    if (count > 0) std::memcpy(floats.data(), into, count * sizeof(float));
    return floats;
  }
  void expect_kept(const Bytes& room, size_t before, size_t bytes) {
    for (size_t i = 0; i < room.size(); i++) {
      if (i >= before && i < before + bytes) continue;
      EXPECT_EQ(room[i], kMark) << i << " of " << bytes;
    }
  }
  void expect_plain_encoded(const Floats& floats, size_t shift = 0) {
    const Bytes got = encoded(WireType::fp8, floats, shift), expected = plain_encoded(floats);
    if (got == expected) return;
    const auto wrong = static_cast<size_t>(std::ranges::mismatch(got, expected).in1 - got.begin());
    ADD_FAILURE() << path().name << ": byte " << wrong << " of " << floats.size() << " floats is "
                  << static_cast<int>(got[wrong]) << " and not "
                  << static_cast<int>(expected[wrong]) << ", of "
                  << (wrong < floats.size() ? floats[wrong] : 0);
  }
  void expect_plain_decoded(const Bytes& bytes, size_t count, size_t shift = 0) {
    const Floats got = decoded(WireType::fp8, bytes, count, shift);
    const Floats expected = plain_decoded(bytes, count);
    for (size_t i = 0; i < count; i++) {
      ASSERT_EQ(bits(got[i]), bits(expected[i]))
          << path().name << ": element " << i << " of " << count << ", "
          << static_cast<int>(bytes[i]) << " with scale "
          << static_cast<int>(bytes[count + i / 32]);
    }
  }
};

TEST_P(WireTest, EveryCodeWithEveryScale) {
  for (const bool has_nan : {false, true}) {  // blocks without one go another way
    Bytes bytes, scales;
    for (uint32_t scale = 0; scale < 256; scale++) {
      for (uint32_t code = 0; code < 256; code++) {
        const bool is_nan = (code & 0x7f) == 0x7f;
        bytes.push_back(static_cast<std::byte>(is_nan && !has_nan ? code - 1 : code));
        // Puts one into each block.
        if (has_nan && code % 32 == scale % 32) bytes.back() = std::byte{0xff};
        if (code % 32 == 0) scales.push_back(static_cast<std::byte>(scale));
      }
    }
    const size_t count = bytes.size();
    bytes.insert(bytes.end(), scales.begin(), scales.end());
    expect_plain_decoded(bytes, count);
  }
}

// All magnitudes, the middle between each and the next, and the floats beside these, in blocks that
// begin with the largest so that they have this scale.
TEST_P(WireTest, EveryRoundingIsToTheNearestEven) {
  const auto& all = magnitudes();
  for (int exponent = -127; exponent <= 119; exponent++) {
    Floats floats;
    const auto add = [&](double value) {
      const auto near = static_cast<float>(std::ldexp(value, exponent));
      for (const float one : {near, std::nextafterf(near, 0), std::nextafterf(near, kInfinity)}) {
        for (const float either : {one, -one}) {
          if (floats.size() % 32 == 0) floats.push_back(std::ldexp(448.0F, exponent));
          if (either <= floats[floats.size() / 32 * 32]) floats.push_back(either);
        }
      }
    };
    for (size_t i = 0; i + 1 < all.size(); i++) {
      add(all[i]);
      add((all[i] + all[i + 1]) / 2);
    }
    expect_plain_encoded(floats);
    // The same with other scales of the group's other blocks, and one by one.
    if (exponent % 16 == 0) {
      for (size_t i = 0; i < floats.size(); i += 64) floats[i] = 1e-20F;
      expect_plain_encoded(floats);
    }
  }
}

// The largest magnitude of a block decides: below and above 448 times the scale, for every scale.
TEST_P(WireTest, NothingIsClipped) {
  for (int exponent = -149; exponent < 128; exponent++) {
    for (const double mantissa : {1.0, 1.5, 1.75, 1.75 + 0x1p-23, 1.875, 2 - 0x1p-23}) {
      const auto amax = static_cast<float>(std::ldexp(mantissa, exponent));
      for (const size_t place : {0, 17, 31}) {
        Floats floats(128);
        for (size_t i = 0; i < 128; i++) {
          floats[i] = amax / static_cast<float>(i + 2) * (i % 3 == 0 ? -1.0F : 1.0F);
        }
        for (size_t block = 0; block < 4; block++) {
          floats[block * 32 + place] = block % 2 == 0 ? amax : -amax;
        }
        expect_plain_encoded(floats);
        const Bytes bytes = encoded(WireType::fp8, floats);
        const Floats back = decoded(WireType::fp8, bytes, 128);
        const auto scale = std::ldexp(1.0, static_cast<int>(bytes[128]) - 127);
        EXPECT_LE(amax, 448 * scale);
        EXPECT_TRUE(bytes[128] == std::byte{0} || amax > 224 * scale);
        for (size_t i = 0; i < 128; i++) {
          if (std::isinf(back[i])) {
            EXPECT_GE(std::fabs(floats[i]), 0x1.fp127F);
            continue;
          }
          const double off = std::fabs(double{back[i]} - floats[i]);
          EXPECT_LE(off, std::max(std::fabs(double{floats[i]}) / 17, scale / 1024)) << floats[i];
          EXPECT_EQ(std::signbit(back[i]), std::signbit(floats[i]));
        }
      }
    }
  }
}

TEST_P(WireTest, ZerosKeepTheirSigns) {
  Floats floats(200);
  for (size_t i = 0; i < floats.size(); i += 3) floats[i] = -0.0F;
  const Bytes bytes = encoded(WireType::fp8, floats);
  EXPECT_EQ(bytes, plain_encoded(floats));
  EXPECT_EQ(bytes[200], std::byte{127});
  const Floats back = decoded(WireType::fp8, bytes, floats.size());
  for (size_t i = 0; i < floats.size(); i++) EXPECT_EQ(bits(back[i]), bits(floats[i]));
}

// Infinities and NaNs are preserved and do not affect other elements.
TEST_P(WireTest, InfinityAndNanComeBackAsNan) {
  const Floats odd = {kInfinity,
                      -kInfinity,
                      kNan,
                      std::bit_cast<float>(0xff800001U),
                      std::bit_cast<float>(0x7fffffffU),
                      std::bit_cast<float>(0xffffffffU)};
  for (const size_t count : {1, 31, 32, 33, 128, 160}) {
    for (const float one : odd) {
      for (size_t place = 0; place < count; place += 5) {
        Floats floats(count);
        for (size_t i = 0; i < count; i++) floats[i] = static_cast<float>(i) - 7.5F;
        const Floats clean = decoded(WireType::fp8, plain_encoded(floats), count);
        floats[place] = one;
        expect_plain_encoded(floats);
        const Floats back = decoded(WireType::fp8, encoded(WireType::fp8, floats), count);
        EXPECT_EQ(bits(back[place]), bits(kNan));
        for (size_t i = 0; i < count; i++) {
          if (i == place) continue;
          EXPECT_LE(std::fabs(back[i] - floats[i]), std::fabs(floats[i]) / 17);
          EXPECT_TRUE(i / 32 == place / 32 || bits(back[i]) == bits(clean[i]));
        }
      }
    }
  }
  expect_plain_encoded(Floats(64, kInfinity));
  expect_plain_encoded(Floats(64, kNan));
}

TEST_P(WireTest, AnyBits) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  SeededRng rng(seed);
  for (int round = 0; round < 400; round++) {
    Floats floats(1000);
    // From any bits down to one exponent for all.
    const uint32_t kept = ~0U >> rng.below(9) | 0x80000000U;
    const auto rest = static_cast<uint32_t>(rng.next()) & ~kept;
    for (float& one : floats) {
      one = std::bit_cast<float>((static_cast<uint32_t>(rng.next()) & kept) | rest);
    }
    expect_plain_encoded(floats, rng.below(64));
    Bytes bytes(wire_bytes(WireType::fp8, floats.size()));
    for (std::byte& one : bytes) one = static_cast<std::byte>(rng.next());
    expect_plain_decoded(bytes, floats.size(), rng.below(64));
  }
}

TEST_P(WireTest, EveryCountAndPlace) {
  SeededRng rng(23);
  for (size_t count = 0; count <= 300; count++) {
    Floats floats(count);
    for (float& one : floats) {
      one = static_cast<float>(rng.uniform01() - 0.5) *
            std::ldexp(1.0F, static_cast<int>(rng.below(20)));
    }
    for (const size_t shift : {size_t{0}, size_t{1}, size_t{rng.below(64)}}) {
      expect_plain_encoded(floats, shift);
      expect_plain_decoded(plain_encoded(floats), count, shift);
      const Floats none =
          decoded(WireType::none, encoded(WireType::none, floats, shift), count, shift);
      EXPECT_EQ(none, floats);
      const Floats bf16 =
          decoded(WireType::bf16, encoded(WireType::bf16, floats, shift), count, shift);
      for (size_t i = 0; i < count; i++) {
        const uint32_t odd = bits(floats[i]) >> 16 & 1;
        EXPECT_EQ(bits(bf16[i]), (bits(floats[i]) + 0x7fff + odd) & 0xffff0000U);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WireTest, testing::Range(size_t{0}, kReducePathCount),
                         [](const auto& one) { return std::string(kReducePaths[one.param].name); });

TEST(WireNamesTest, AreReadAsTheyAreWritten) {
  for (const WireType wire : {WireType::none, WireType::bf16, WireType::fp8}) {
    EXPECT_EQ(wire_type_of(wire_type_name(wire)), wire);
  }
  EXPECT_EQ(wire_type_name(WireType::fp8), "fp8");
  EXPECT_FALSE(wire_type_of("fp4").has_value());
  EXPECT_FALSE(wire_type_of("").has_value());
}

TEST(WireSizesTest, CountEveryByte) {
  EXPECT_EQ(wire_bytes(WireType::none, 5), 20U);
  EXPECT_EQ(wire_bytes(WireType::bf16, 5), 10U);
  EXPECT_EQ(wire_bytes(WireType::fp8, 0), 0U);
  EXPECT_EQ(wire_bytes(WireType::fp8, 1), 2U);
  EXPECT_EQ(wire_bytes(WireType::fp8, 32), 33U);
  EXPECT_EQ(wire_bytes(WireType::fp8, 33), 35U);
}

TEST(WireTestOfThisCpu, GoesByTheChosenPath) {
  const Floats floats = {1, -2, 3.5F, 1000};
  Bytes bytes(wire_bytes(WireType::fp8, floats.size()));
  encode(WireType::fp8, floats.data(), floats.size(), bytes.data());
  EXPECT_EQ(bytes, plain_encoded(floats));
  Floats back(floats.size());
  decode(WireType::fp8, bytes.data(), back.size(), back.data());
  EXPECT_EQ(back, (Floats{1, -2, 3.5F, 1024}));
  encode(WireType::fp8, nullptr, 0, nullptr);
  decode(WireType::fp8, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace ff::simd
