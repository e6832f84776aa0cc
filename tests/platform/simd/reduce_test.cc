// Reductions: every supported code path against plain definitions, bit for bit. The reference
// decodes narrow floats by the definitions of their formats and rounds by searching all values.
#include "platform/simd/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/simd/reduce_paths.h"

namespace ff::simd {
namespace {

struct Format {
  int width, mantissa, bias;
  bool has_infinity;
};
const std::map<DataType, Format> kFormats = {{DataType::f16, {16, 10, 15, true}},
                                             {DataType::bf16, {16, 7, 127, true}},
                                             {DataType::f8e4m3, {8, 3, 7, false}},
                                             {DataType::f8e5m2, {8, 2, 15, true}}};

class NarrowFloat {
 public:
  explicit NarrowFloat(const Format& format) : format_(format) {
    for (uint32_t code = 0; code <= top(); code++) values_.push_back(magnitude(code));
  }
  uint32_t codes() const { return 1U << format_.width; }
  uint32_t sign() const { return 1U << (format_.width - 1); }
  // Infinity, or NaN if the type has no infinity.
  uint32_t top() const {
    const uint32_t all = sign() - 1;
    return format_.has_infinity ? all >> format_.mantissa << format_.mantissa : all;
  }
  uint32_t quiet() const {
    return format_.has_infinity ? top() | 1U << (format_.mantissa - 1) : top();
  }
  bool is_nan(uint32_t code) const {
    const uint32_t magnitude = code & (sign() - 1);
    return format_.has_infinity ? magnitude > top() : magnitude == top();
  }
  float decode(uint32_t code) const {
    if (is_nan(code)) return std::numeric_limits<float>::quiet_NaN();
    const uint32_t magnitude = code & (sign() - 1);
    const bool is_infinite = format_.has_infinity && magnitude == top();
    const float value = is_infinite ? std::numeric_limits<float>::infinity()
                                    : static_cast<float>(values_[magnitude]);
    return (code & sign()) != 0 ? -value : value;
  }
  // The nearest value; of two equally near values the even one.
  uint32_t encode(float value) const {
    if (std::isnan(value)) return quiet();
    const double wanted = std::fabs(static_cast<double>(value));
    const auto above = std::ranges::lower_bound(values_, wanted);
    auto code = static_cast<uint32_t>(above - values_.begin());
    if (above == values_.end()) {
      code = top();
    } else if (*above != wanted) {
      const double up = *above - wanted, down = wanted - *(above - 1);
      if (down < up || (down == up && code % 2 == 1)) code--;
    }
    if (code == top() && !format_.has_infinity) return quiet();
    return code | (std::signbit(value) ? sign() : 0);
  }
  // All magnitudes in order, and after the largest the one that would follow.
  const std::vector<double>& values() const { return values_; }

 private:
  double magnitude(uint32_t code) const {
    const auto exponent = static_cast<int>(code >> format_.mantissa);
    const auto fraction = static_cast<int>(code & ((1U << format_.mantissa) - 1));
    const int one = exponent > 0 ? 1 << format_.mantissa : 0;
    return std::ldexp(one + fraction, std::max(exponent, 1) - format_.bias - format_.mantissa);
  }
  Format format_;
  std::vector<double> values_;
};

const NarrowFloat& narrow(DataType type) {
  static const auto all = [] {
    std::map<DataType, NarrowFloat> made;
    for (const auto& [one, format] : kFormats) made.emplace(one, NarrowFloat(format));
    return made;
  }();
  return all.at(type);
}

template <class T>
T combined(ReduceOp op, T a, T b) {
  using Unsigned =
      std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    case ReduceOp::prod: return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    case ReduceOp::max: return b > a || b != b ? b : a;
    case ReduceOp::min: return b < a || b != b ? b : a;
  }
  return a;
}

using Bytes = std::vector<std::byte>;

template <class T>
T at(const void* from, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(Bytes& to, size_t index, T value) {
  std::memcpy(to.data() + index * sizeof(T), &value, sizeof(T));
}

template <class T>
Bytes plain_of(const ReduceSpec& what, const std::vector<const void*>& inputs, size_t count) {
  Bytes to(count * sizeof(T));
  const bool divides = what.op == ReduceOp::avg && what.to == ElementKind::value;
  for (size_t i = 0; i < count; i++) {
    T value = at<T>(inputs[0], i);
    for (size_t k = 1; k < inputs.size(); k++) {
      value = combined(what.op, value, at<T>(inputs[k], i));
    }
    if (divides) value = static_cast<T>(value / static_cast<T>(what.ranks));
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    }
    put(to, i, value);
  }
  return to;
}

uint32_t code_at(DataType type, const void* from, size_t index) {
  return size_of(type) == 1 ? at<uint8_t>(from, index) : at<uint16_t>(from, index);
}

Bytes plain_of_narrow(const ReduceSpec& what, const std::vector<const void*>& inputs,
                      size_t count) {
  const NarrowFloat& format = narrow(what.type);
  const auto load = [&](const void* from, size_t i) {
    return what.from == ElementKind::partial ? at<float>(from, i)
                                             : format.decode(code_at(what.type, from, i));
  };
  const bool ends = what.to == ElementKind::value;
  Bytes to(count * (ends ? size_of(what.type) : sizeof(float)));
  for (size_t i = 0; i < count; i++) {
    float value = load(inputs[0], i);
    for (size_t k = 1; k < inputs.size(); k++) value = combined(what.op, value, load(inputs[k], i));
    if (ends && what.op == ReduceOp::avg) value /= static_cast<float>(what.ranks);
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
    if (!ends) put(to, i, value);
    if (ends && size_of(what.type) == 1) put(to, i, static_cast<uint8_t>(format.encode(value)));
    if (ends && size_of(what.type) == 2) put(to, i, static_cast<uint16_t>(format.encode(value)));
  }
  return to;
}

Bytes plain(const ReduceSpec& what, const std::vector<const void*>& inputs, size_t count) {
  switch (what.type) {
    case DataType::f32: return plain_of<float>(what, inputs, count);
    case DataType::f64: return plain_of<double>(what, inputs, count);
    case DataType::i32: return plain_of<int32_t>(what, inputs, count);
    case DataType::i64: return plain_of<int64_t>(what, inputs, count);
    case DataType::u8: return plain_of<uint8_t>(what, inputs, count);
    default: return plain_of_narrow(what, inputs, count);
  }
}

class ReduceTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!path().supported()) GTEST_SKIP() << "this CPU has no " << path().name;
  }
  const ReducePath& path() const { return kReducePaths[GetParam()]; }
  size_t to_bytes(const ReduceSpec& what) const {
    return size_of(what.to == ElementKind::value ? what.type : partial_type(what.type));
  }
  // By this path, into bytes `shift` off an aligned address, with some before and behind that stay.
  Bytes by_path(const ReduceSpec& what, const std::vector<const void*>& inputs, size_t count,
                size_t shift = 0) {
    constexpr size_t kAround = 64;
    constexpr std::byte kMark{0xa5};
    const size_t bytes = count * to_bytes(what);
    Bytes room(bytes + 4 * kAround, kMark);
    const auto start = reinterpret_cast<uintptr_t>(room.data());
    const size_t first = align_up(start + kAround, kAround) - start + shift;
    void* const output = room.data() + first;
    reduce_with(path(), what, {inputs, {&output, 1}, count});
    EXPECT_TRUE(std::all_of(room.begin(), room.begin() + static_cast<ptrdiff_t>(first),
                            [&](std::byte b) { return b == kMark; }));
    EXPECT_TRUE(std::all_of(room.begin() + static_cast<ptrdiff_t>(first + bytes), room.end(),
                            [&](std::byte b) { return b == kMark; }));
    return {room.begin() + static_cast<ptrdiff_t>(first),
            room.begin() + static_cast<ptrdiff_t>(first + bytes)};
  }
  void expect_plain(const ReduceSpec& what, const std::vector<const void*>& inputs, size_t count,
                    size_t shift = 0) {
    const Bytes got = by_path(what, inputs, count, shift);
    const Bytes expected = plain(what, inputs, count);
    if (got == expected) return;
    const size_t bytes = to_bytes(what);
    const auto wrong = std::ranges::mismatch(got, expected).in1 - got.begin();
    const size_t index = static_cast<size_t>(wrong) / bytes;
    ADD_FAILURE() << path().name << " " << data_type_name(what.type) << " "
                  << reduce_op_name(what.op) << " of " << inputs.size() << " inputs, element "
                  << index << " of " << count << ": "
                  << hex(ByteView(got).subspan(index * bytes, bytes)) << " and not "
                  << hex(ByteView(expected).subspan(index * bytes, bytes));
  }
};

constexpr std::array kAllOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                                ReduceOp::avg};
std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (size_t i = 0; i < kDataTypes; i++) types.push_back(static_cast<DataType>(i));
  return types;
}

// Every value of these types.
Bytes all_codes(DataType type) {
  const uint32_t count = narrow(type).codes();
  Bytes codes(count * size_of(type));
  for (uint32_t code = 0; code < count; code++) {
    if (size_of(type) == 1) put(codes, code, static_cast<uint8_t>(code));
    if (size_of(type) == 2) put(codes, code, static_cast<uint16_t>(code));
  }
  return codes;
}

TEST_P(ReduceTest, EveryNarrowValueIsRead) {
  for (const auto& [type, format] : kFormats) {
    const Bytes codes = all_codes(type);
    expect_plain({.type = type, .to = ElementKind::partial}, {codes.data()}, narrow(type).codes());
    expect_plain({.type = type}, {codes.data()}, narrow(type).codes());  // as it was, but NaN
  }
}

// All magnitudes, the midpoints between neighbours, and the floats next to these.
std::vector<float> floats_around(const NarrowFloat& format) {
  std::vector<float> floats;
  const auto add = [&](double value) {
    const auto near = static_cast<float>(value);
    for (const float one : {near, std::nextafterf(near, 0), std::nextafterf(near, INFINITY)}) {
      floats.insert(floats.end(), {one, -one});
    }
  };
  for (size_t i = 0; i + 1 < format.values().size(); i++) {
    add(format.values()[i]);
    add((format.values()[i] + format.values()[i + 1]) / 2);
  }
  for (const double one : {1e-45, 1e-38, 3.4028234e38, 1e30, 1.0}) add(one);
  for (const uint32_t bits : {0x7f800000U, 0xff800000U, 0x7fc00000U, 0xffc00000U, 0x7f800001U,
                              0xff800001U, 0x7fffffffU, 0xffffffffU}) {
    floats.push_back(std::bit_cast<float>(bits));
  }
  return floats;
}

TEST_P(ReduceTest, EveryRoundingIsToTheNearestEven) {
  for (const auto& [type, format] : kFormats) {
    std::vector<float> floats = floats_around(narrow(type));
    SeededRng rng(7);
    for (int i = 0; i < 300'000; i++) {
      floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng.next())));
    }
    expect_plain({.type = type, .from = ElementKind::partial}, {floats.data()}, floats.size());
  }
}

TEST_P(ReduceTest, EveryPairOfFp8) {
  for (const DataType type : {DataType::f8e4m3, DataType::f8e5m2}) {
    Bytes first(65'536), second(65'536);
    for (uint32_t i = 0; i < 65'536; i++) {
      put(first, i, static_cast<uint8_t>(i));
      put(second, i, static_cast<uint8_t>(i >> 8));
    }
    for (const ReduceOp op : kAllOps) {
      expect_plain({.type = type, .op = op, .ranks = 3}, {first.data(), second.data()}, 65'536);
    }
  }
}

TEST_P(ReduceTest, EveryHalfAndBfloat16WithOthers) {
  for (const DataType type : {DataType::f16, DataType::bf16}) {
    const Bytes codes = all_codes(type);
    const NarrowFloat& format = narrow(type);
    for (const uint32_t other :
         {0U, format.sign(), 1U, format.encode(1), format.encode(-1), format.encode(3e-5F),
          format.encode(0.1F), format.top() - 1, format.top(), format.top() | format.sign(),
          format.quiet(), format.sign() - 1}) {
      Bytes same(codes.size());
      for (size_t i = 0; i < format.codes(); i++) put(same, i, static_cast<uint16_t>(other));
      for (const ReduceOp op : kAllOps) {
        expect_plain({.type = type, .op = op, .ranks = 2}, {codes.data(), same.data()},
                     format.codes());
      }
    }
  }
}

// Random bits, so also NaNs and subnormal numbers.
TEST_P(ReduceTest, EveryTypeOperationCountAndPlace) {
  SeededRng rng(11);
  constexpr size_t kMost = 700;
  std::vector<Bytes> ranks(9, Bytes(kMost * 8 + 64));
  for (Bytes& rank : ranks) {
    for (std::byte& one : rank) one = static_cast<std::byte>(rng.next());
  }
  for (const DataType type : all_types()) {
    for (const ReduceOp op : kAllOps) {
      for (const ElementKind to : {ElementKind::value, ElementKind::partial}) {
        for (const size_t count : {0, 1, 2, 7, 63, 64, 65, 127, 128, 129, 512, 700}) {
          const size_t inputs = 1 + rng.below(ranks.size());
          std::vector<const void*> from;
          for (size_t i = 0; i < inputs; i++) from.push_back(ranks[i].data() + rng.below(64));
          const size_t shift = rng.below(64);
          const ReduceSpec what{
              .type = type, .op = op, .to = to, .ranks = 5, .non_temporal = rng.below(2) == 0};
          expect_plain(what, from, count, shift);
          expect_plain(what, from, count, shift / 8 * 8);
        }
      }
    }
  }
}

TEST_P(ReduceTest, PartialResultsAreReducedAndEnd) {
  SeededRng rng(13);
  constexpr size_t kCount = 1000;
  std::vector<std::vector<float>> ranks(4, std::vector<float>(kCount));
  for (auto& rank : ranks) {
    for (float& one : rank) one = std::ldexp(static_cast<float>(rng.below(2000)) - 1000, -8);
  }
  std::vector<const void*> from;
  for (const auto& rank : ranks) from.push_back(rank.data());
  for (const auto& [type, format] : kFormats) {
    for (const ReduceOp op : kAllOps) {
      const ReduceSpec ends{.type = type, .op = op, .from = ElementKind::partial, .ranks = 8};
      expect_plain(ends, from, kCount);
      ReduceSpec on = ends;
      on.to = ElementKind::partial;
      const Bytes got = by_path(on, from, kCount);
      EXPECT_EQ(got,
                plain({.type = DataType::f32, .op = op, .to = ElementKind::partial}, from, kCount));
    }
  }
}

TEST_P(ReduceTest, MayOverwriteAnInput) {
  for (const DataType type : all_types()) {
    for (const bool non_temporal : {false, true}) {
      constexpr size_t kCount = 1001;
      SeededRng rng(17);
      Bytes first(kCount * size_of(type)), second(kCount * size_of(type));
      for (std::byte& one : first) one = static_cast<std::byte>(rng.next());
      for (std::byte& one : second) one = static_cast<std::byte>(rng.next());
      const ReduceSpec what{.type = type, .non_temporal = non_temporal};
      const Bytes expected = plain(what, {first.data(), second.data()}, kCount);
      Bytes copy = second;
      const std::array<const void*, 2> inputs = {first.data(), copy.data()};
      void* const output = copy.data();
      reduce_with(path(), what, {inputs, {&output, 1}, kCount});
      EXPECT_EQ(copy, expected) << data_type_name(type);
    }
  }
}

TEST_P(ReduceTest, EveryOutputGetsAll) {
  SeededRng rng(19);
  constexpr size_t kMost = 1500;
  Bytes first(kMost * 8), second(kMost * 8);
  for (std::byte& one : first) one = static_cast<std::byte>(rng.next());
  for (std::byte& one : second) one = static_cast<std::byte>(rng.next());
  for (const DataType type : all_types()) {
    for (int round = 0; round < 40; round++) {
      const size_t count = rng.below(kMost);
      const size_t bytes = count * size_of(type);
      const bool alike = round % 2 == 0;  // outputs that lie alike can go past the caches
      const size_t shift = rng.below(64);
      std::vector<Bytes> rooms(3, Bytes(bytes + 192, std::byte{0xa5}));
      std::vector<void*> outputs;
      for (Bytes& room : rooms) {
        const auto start = reinterpret_cast<uintptr_t>(room.data());
        outputs.push_back(room.data() + (align_up(start, 64) - start) +
                          (alike ? shift : rng.below(64)));
      }
      const std::vector<const void*> inputs = {first.data(), second.data()};
      const ReduceSpec what{.type = type, .non_temporal = true};
      const Bytes expected = plain(what, inputs, count);
      reduce_with(path(), what, {inputs, outputs, count});
      for (size_t i = 0; i < rooms.size(); i++) {
        const auto* at = static_cast<const std::byte*>(outputs[i]);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), at)) << data_type_name(type);
        const std::byte* const end = rooms[i].data() + rooms[i].size();
        EXPECT_EQ(std::find_if(at + bytes, end, [](auto b) { return b != std::byte{0xa5}; }), end);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceTest, testing::Range(size_t{0}, kReducePathCount),
                         [](const auto& one) { return std::string(kReducePaths[one.param].name); });

TEST(ReduceNamesTest, AreReadAsTheyAreWritten) {
  for (const DataType type : all_types()) EXPECT_EQ(data_type_of(data_type_name(type)), type);
  for (const ReduceOp op : kAllOps) EXPECT_EQ(reduce_op_of(reduce_op_name(op)), op);
  EXPECT_FALSE(data_type_of("complex").has_value());
  EXPECT_FALSE(reduce_op_of("").has_value());
}

TEST(ReduceNamesTest, ThePathOfThisCpuIsTheFastestItHas) {
  const std::vector<const void*> none;
  std::vector<float> one = {1, 2}, two = {3, 4};
  const std::vector<const void*> inputs = {one.data(), two.data()};
  std::vector<float> to(2);
  void* const output = to.data();
  reduce_arrays({}, {inputs, {&output, 1}, 2});
  EXPECT_EQ(to, (std::vector<float>{4, 6}));
  for (const ReducePath& path : kReducePaths) {
    if (!path.supported()) continue;
    EXPECT_EQ(reduce_path(), path.name);
    break;
  }
}

TEST(ReduceNamesTest, AnotherPathCanBeChosen) {
  const std::string before(reduce_path());
  ASSERT_TRUE(choose_reduce_path("sse2").ok());
  EXPECT_EQ(reduce_path(), "sse2");
  EXPECT_EQ(choose_reduce_path("mmx").error().code, Errc::usage);
  for (const ReducePath& path : kReducePaths) {
    const auto chosen = choose_reduce_path(path.name);
    EXPECT_EQ(chosen.ok(), path.supported());
    if (!chosen) {
      EXPECT_EQ(chosen.error().code, Errc::unsupported);
    }
  }
  ASSERT_TRUE(choose_reduce_path(before).ok());
}

}  // namespace
}  // namespace ff::simd
