// Differences between checkpoints: states, byte counts and element values.
#include "training/checkpoint/load/diff.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class Diff : public CheckpointTest {
 protected:
  // Entries by "FILE" or "FILE:TENSOR"; the report in report_.
  std::map<std::string, DiffEntry> run(bool values = false, uint64_t step = 1) {
    std::map<std::string, DiffEntry> out;
    auto ctx = context();
    const auto report = diff(ctx, store(),
                             {.a = fmt::format("default@{}", step),
                              .b = fmt::format("default@{}", step + 1),
                              .values = values},
                             [&](const DiffEntry& entry) -> Result<void> {
                               const std::string key =
                                   entry.tensor ? entry.file + ":" + *entry.tensor : entry.file;
                               EXPECT_TRUE(out.emplace(key, entry).second) << key;
                               return {};
                             });
    EXPECT_TRUE(report.ok()) << report.error().message;
    if (report) report_ = *report;
    return out;
  }

  // The values of one tensor saved in two steps.
  ValueChanges values_of(const std::string& dtype, uint64_t count, const std::string& a,
                         const std::string& b) {
    const uint64_t step = next_step_;
    next_step_ += 2;
    save_file("m.safetensors", make_safetensors({{"t", dtype, {count}, a}}), step);
    save_file("m.safetensors", make_safetensors({{"t", dtype, {count}, b}}), step + 1);
    const auto entries = run(true, step);
    const auto& entry = entries.at("m.safetensors:t");
    EXPECT_EQ(entry.state, DiffState::changed);
    EXPECT_TRUE(entry.values.has_value());
    return entry.values.value_or(ValueChanges{});
  }

  uint64_t next_step_ = 1;
  DiffReport report_;
};

TEST_F(Diff, ReportsStatesAndBytes) {
  std::string large = noise(1, 9'000'000);
  write_whole(path("in/m.safetensors"),
              make_safetensors({{"large", "U8", {9'000'000}, large},
                                {"same", "F32", {500'000}, noise(2, 2'000'000)},
                                {"gone", "F32", {4}, noise(3, 16)}}));
  write_whole(path("in/same.txt"), "text");
  write_whole(path("in/changed.txt"), "text");
  write_whole(path("in/gone.txt"), "text");
  fs::create_symlink("here", path("in/link"));
  FF_ASSERT_OK(save({path("in")}));

  large[5'000'000] ^= 1;
  write_whole(path("in/m.safetensors"),
              make_safetensors({{"large", "U8", {9'000'000}, large},
                                {"same", "F32", {500'000}, noise(2, 2'000'000)},
                                {"new", "F32", {8}, noise(3, 32)}}));
  write_whole(path("in/changed.txt"), "TEXT");
  write_whole(path("in/new.txt"), "more text");
  fs::remove(path("in/gone.txt"));
  fs::remove(path("in/link"));
  fs::create_symlink("there", path("in/link"));
  FF_ASSERT_OK(save({path("in")}));

  const auto entries = run();
  EXPECT_EQ(entries.size(), 11U);
  EXPECT_EQ(entries.at("in").state, DiffState::same);
  EXPECT_EQ(entries.at("in").kind, EntryKind::directory);
  EXPECT_EQ(entries.at("in/m.safetensors:large").state, DiffState::changed);
  EXPECT_EQ(entries.at("in/m.safetensors:large").differing, kChunkBytes);
  EXPECT_FALSE(entries.at("in/m.safetensors:large").values.has_value());
  EXPECT_EQ(entries.at("in/m.safetensors:same").state, DiffState::same);
  EXPECT_EQ(entries.at("in/m.safetensors:same").differing, 0U);
  EXPECT_EQ(entries.at("in/m.safetensors:new").state, DiffState::added);
  EXPECT_EQ(entries.at("in/m.safetensors:new").differing, 32U);
  EXPECT_FALSE(entries.at("in/m.safetensors:new").a.has_value());
  EXPECT_EQ(entries.at("in/m.safetensors:new").b->shape, std::vector<uint64_t>{8});
  EXPECT_EQ(entries.at("in/m.safetensors:gone").state, DiffState::removed);
  EXPECT_EQ(entries.at("in/m.safetensors:gone").a->dtype, "F32");
  EXPECT_FALSE(entries.at("in/m.safetensors:gone").b.has_value());
  EXPECT_EQ(entries.at("in/m.safetensors").state, DiffState::changed);  // its header
  EXPECT_EQ(entries.at("in/same.txt").state, DiffState::same);
  EXPECT_EQ(entries.at("in/changed.txt").state, DiffState::changed);
  EXPECT_EQ(entries.at("in/changed.txt").differing, 4U);
  EXPECT_EQ(entries.at("in/new.txt").state, DiffState::added);
  EXPECT_EQ(entries.at("in/gone.txt").state, DiffState::removed);
  EXPECT_EQ(entries.at("in/link").state, DiffState::changed);
  EXPECT_EQ(report_.tensors.same, 1U);
  EXPECT_EQ(report_.tensors.changed, 1U);
  EXPECT_EQ(report_.tensors.added, 1U);
  EXPECT_EQ(report_.tensors.removed, 1U);
  EXPECT_EQ(report_.tensors.differing, kChunkBytes + 32 + 16);
  EXPECT_EQ(report_.files.same, 2U);
  EXPECT_EQ(report_.files.changed, 3U);
  EXPECT_EQ(report_.files.added, 1U);
  EXPECT_EQ(report_.files.removed, 1U);
}

// Small tensors share a chunk; when one changes, its neighbours get another chunk too.
TEST_F(Diff, ANeighbourInTheSameChunkStaysTheSame) {
  const TensorSpec quiet{"quiet", "F32", {25}, noise(1, 100)};
  const TensorSpec zeros{"zeros", "F32", {25}, std::string(100, '\0')};
  save_file("m.safetensors", make_safetensors({quiet, zeros, {"t", "U8", {4}, "abcd"}}), 1);
  save_file("m.safetensors", make_safetensors({quiet, zeros, {"t", "U8", {4}, "abcx"}}), 2);
  const auto entries = run();
  EXPECT_EQ(entries.at("m.safetensors:quiet").state, DiffState::same);
  EXPECT_EQ(entries.at("m.safetensors:zeros").state, DiffState::same);
  EXPECT_EQ(entries.at("m.safetensors:t").state, DiffState::changed);
  EXPECT_EQ(entries.at("m.safetensors:t").differing, 4U);
  EXPECT_EQ(report_.tensors.differing, 4U);
}

TEST_F(Diff, TheSameZerosInAndOutsideOfChunks) {
  const TensorSpec zeros{"zeros", "F32", {25}, std::string(100, '\0')};
  // Whole chunks of zeros are not stored; with other data they are part of a chunk.
  save_file("m.safetensors", make_safetensors({zeros, {"t", "U8", {4}, std::string(4, '\0')}}), 1);
  save_file("m.safetensors", make_safetensors({zeros, {"t", "U8", {4}, "abcd"}}), 2);
  const auto entries = run(true);
  EXPECT_EQ(entries.at("m.safetensors:zeros").state, DiffState::same);
  EXPECT_EQ(entries.at("m.safetensors:t").state, DiffState::changed);
  EXPECT_EQ(entries.at("m.safetensors:t").values->changed, 4U);
  EXPECT_EQ(entries.at("m.safetensors:t").values->max_difference, 'd');
}

TEST_F(Diff, AnotherTypeOrShapeIsAChange) {
  save_file("m.safetensors", make_safetensors({{"t", "F32", {4, 2}, noise(1, 32)}}), 1);
  save_file("m.safetensors", make_safetensors({{"t", "F32", {2, 4}, noise(1, 32)}}), 2);
  auto entries = run(true);
  EXPECT_EQ(entries.at("m.safetensors:t").state, DiffState::changed);
  EXPECT_EQ(entries.at("m.safetensors:t").differing, 0U);
  EXPECT_FALSE(entries.at("m.safetensors:t").values.has_value());
}

TEST_F(Diff, CountsValuesOfFloats) {
  const float nan = std::nanf("1");
  const float other_nan = std::bit_cast<float>(0xffc12345U);
  const float inf = INFINITY;
  const auto f32 = values_of("F32", 8, bytes_of<float>({1, 2, nan, nan, 0, inf, -3, 5}),
                             bytes_of<float>({1, 2.5, other_nan, 1, -0.0F, 7, 3, 5}));
  EXPECT_EQ(f32.elements, 8U);
  EXPECT_EQ(f32.changed, 4U);     // 2 -> 2.5, NaN -> 1, inf -> 7, -3 -> 3
  EXPECT_EQ(f32.not_finite, 2U);  // not NaN -> NaN
  EXPECT_EQ(f32.max_difference, 6.0);
  const auto f64 = values_of("F64", 2, bytes_of<double>({1e300, 2}), bytes_of<double>({-1e300, 2}));
  EXPECT_EQ(f64.changed, 1U);
  EXPECT_EQ(f64.max_difference, 2e300);
  // F16: 1, -2, the smallest subnormal, the largest number, NaN, infinity; and 1.5, 2, 0, 65504,
  // ...
  const auto f16 =
      values_of("F16", 6, bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff, 0x7e00, 0x7c00}),
                bytes_of<uint16_t>({0x3e00, 0x4000, 0x0000, 0x7bff, 0xfe01, 0xfc00}));
  EXPECT_EQ(f16.changed, 4U);
  EXPECT_EQ(f16.not_finite, 1U);
  EXPECT_EQ(f16.max_difference, 4.0);
  const auto tiny = values_of("F16", 1, bytes_of<uint16_t>({0x0001}), bytes_of<uint16_t>({0}));
  EXPECT_EQ(tiny.max_difference, std::ldexp(1.0, -24));
  const auto most = values_of("F16", 1, bytes_of<uint16_t>({0x7bff}), bytes_of<uint16_t>({0}));
  EXPECT_EQ(most.max_difference, 65504.0);
  const auto bf16 = values_of("BF16", 3, bytes_of<uint16_t>({0x3f80, 0xc040, 0x7fc0}),
                              bytes_of<uint16_t>({0x3f80, 0x4040, 0xffff}));
  EXPECT_EQ(bf16.changed, 1U);
  EXPECT_EQ(bf16.max_difference, 6.0);
}

TEST_F(Diff, CountsValuesOfIntegers) {
  const auto i64 = values_of("I64", 3, bytes_of<int64_t>({INT64_MIN, -5, 9}),
                             bytes_of<int64_t>({INT64_MAX, 7, 9}));
  EXPECT_EQ(i64.changed, 2U);
  EXPECT_EQ(i64.max_difference, static_cast<double>(UINT64_MAX));
  const auto i8 = values_of("I8", 2, bytes_of<int8_t>({-128, 1}), bytes_of<int8_t>({127, 1}));
  EXPECT_EQ(i8.max_difference, 255.0);
  const auto u64 = values_of("U64", 1, bytes_of<uint64_t>({UINT64_MAX}), bytes_of<uint64_t>({1}));
  EXPECT_EQ(u64.max_difference, static_cast<double>(UINT64_MAX - 1));
  const auto u16 = values_of("U16", 1, bytes_of<uint16_t>({3}), bytes_of<uint16_t>({65535}));
  EXPECT_EQ(u16.max_difference, 65532.0);
  const auto flag =
      values_of("BOOL", 3, bytes_of<uint8_t>({0, 1, 1}), bytes_of<uint8_t>({1, 1, 0}));
  EXPECT_EQ(flag.changed, 2U);
  EXPECT_EQ(value_compare("F8_E4M3"), nullptr);
  EXPECT_EQ(value_compare("F3_NEW"), nullptr);
}

// Values over several chunks, of which one is skipped as equal, against a plain loop.
TEST_F(Diff, CountsValuesOverManyChunks) {
  SeededRng rng(5);
  std::vector<int32_t> a(3'000'001);
  for (auto& value : a) value = static_cast<int32_t>(rng.below(1000));
  std::vector<int32_t> b = a;
  uint64_t changed = 0;
  double most = 0;
  for (int i = 0; i < 1000; i++) {
    const size_t at = rng.below(2) == 0 ? rng.below(1'000'000) : 2'200'000 + rng.below(800'000);
    b[at] = static_cast<int32_t>(rng.below(100'000));
  }
  for (size_t i = 0; i < a.size(); i++) {
    changed += a[i] != b[i] ? 1 : 0;
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - b[i]));
  }
  const auto values = values_of("I32", a.size(), bytes_of(a), bytes_of(b));
  EXPECT_EQ(values.elements, a.size());
  EXPECT_EQ(values.changed, changed);
  EXPECT_EQ(values.max_difference, most);
}

TEST_F(Diff, DamageIsAnErrorWhereBytesAreNeeded) {
  save_file("m.safetensors", make_safetensors({{"t", "U8", {5000}, noise(1, 5000)}}), 1);
  const auto before = chunk_files();
  save_file("m.safetensors", make_safetensors({{"t", "U8", {5000}, noise(2, 5000)}}), 2);
  for (const auto& chunk : before) flip_bit(chunk, 8 * 4096);
  const auto entries = run();  // CRCs in the indexes decide
  EXPECT_EQ(entries.at("m.safetensors:t").state, DiffState::changed);
  auto ctx = context();
  const auto report = diff(ctx, store(), {.a = "default@1", .b = "default@2", .values = true},
                           [](const DiffEntry&) -> Result<void> { return {}; });
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::corrupt);
  EXPECT_NE(report.error().message.find("tensor 't'"), std::string::npos) << report.error().message;
}

TEST_F(Diff, TheCallersErrorEndsIt) {
  save_file("a", "text", 1);
  save_file("a", "more", 2);
  auto ctx = context();
  const auto report =
      diff(ctx, store(), {.a = "default@1", .b = "default@2", .values = false},
           [](const DiffEntry&) -> Result<void> { return fail(Errc::interrupted, "enough"); });
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace ff::checkpoint
