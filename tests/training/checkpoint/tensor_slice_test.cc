// Slices as byte runs, against a model that copies element by element.
#include "training/checkpoint/load/tensor_slice.h"

#include <gtest/gtest.h>

#include <string>

#include "platform/base/rng.h"
#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

// The element at `index`, counted in row-major order.
uint64_t place(const std::vector<uint64_t>& shape, const std::vector<uint64_t>& index) {
  uint64_t at = 0;
  for (size_t i = 0; i < shape.size(); i++) at = at * shape[i] + index[i];
  return at;
}

// Copies a box one element at a time.
void copy_slowly(const BoxCopy& box, const std::string& from, std::string& to) {
  const uint64_t count = elements(box.size);
  for (uint64_t n = 0; n < count; n++) {
    std::vector<uint64_t> source(box.size.size());
    std::vector<uint64_t> target(box.size.size());
    uint64_t rest = n;
    for (size_t i = box.size.size(); i-- > 0;) {
      source[i] = box.from_start[i] + rest % box.size[i];
      target[i] = box.to_start[i] + rest % box.size[i];
      rest /= box.size[i];
    }
    to.replace(place(box.to_shape, target) * box.element_bytes, box.element_bytes,
               from.substr(place(box.from_shape, source) * box.element_bytes, box.element_bytes));
  }
}

BoxCopy random_box(Rng& rng) {
  BoxCopy box;
  box.element_bytes = uint64_t{1} << rng.below(4);
  for (uint64_t d = rng.below(5); d > 0; d--) {
    // Often whole dimensions on one side or both, so that runs join.
    const uint64_t size = rng.below(16) == 0 ? 0 : 1 + rng.below(5);
    const uint64_t from_rest = rng.below(2) == 0 ? 0 : rng.below(4);
    const uint64_t to_rest = rng.below(2) == 0 ? 0 : rng.below(4);
    box.size.push_back(size);
    box.from_shape.push_back(size + from_rest);
    box.to_shape.push_back(size + to_rest);
    box.from_start.push_back(from_rest == 0 ? 0 : rng.below(from_rest + 1));
    box.to_start.push_back(to_rest == 0 ? 0 : rng.below(to_rest + 1));
  }
  return box;
}

TEST(TensorSlice, RunsCopyWhatTheModelCopies) {
  for (uint64_t seed = 0; seed < 2000; seed++) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    const BoxCopy box = random_box(rng);
    std::string from(elements(box.from_shape) * box.element_bytes, '\0');
    for (char& c : from) c = static_cast<char>(rng.next() | 1);
    std::string wanted(elements(box.to_shape) * box.element_bytes, '\0');
    std::string got = wanted;
    copy_slowly(box, from, wanted);
    uint64_t last_end = 0;
    uint64_t copied = 0;
    const auto result = for_each_run(box, [&](ByteRun run) -> Result<void> {
      EXPECT_GT(run.length, 0U);
      EXPECT_GE(run.to, last_end);  // in order, never twice
      last_end = run.to + run.length;
      copied += run.length;
      EXPECT_LE(run.from + run.length, from.size());
      EXPECT_LE(last_end, got.size());
      got.replace(run.to, run.length, from.substr(run.from, run.length));
      return {};
    });
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(got, wanted);
    ASSERT_EQ(copied, elements(box.size) * box.element_bytes);
  }
}

TEST(TensorSlice, RunsHaveMaximalLength) {
  const auto runs = [](const BoxCopy& box) {
    int count = 0;
    EXPECT_TRUE(for_each_run(box, [&](ByteRun) -> Result<void> {
                  count++;
                  return {};
                }).ok());
    return count;
  };
  const std::vector<uint64_t> zero(3, 0);
  EXPECT_EQ(runs({{4, 5, 6}, zero, {4, 5, 6}, zero, {4, 5, 6}, 2}), 1);
  EXPECT_EQ(runs({{4, 5, 6}, {1, 0, 0}, {2, 5, 6}, zero, {2, 5, 6}, 2}), 1);
  EXPECT_EQ(runs({{4, 5, 6}, {0, 1, 0}, {4, 2, 6}, zero, {4, 2, 6}, 2}), 4);
  EXPECT_EQ(runs({{4, 5, 6}, {0, 0, 1}, {4, 5, 2}, zero, {4, 5, 2}, 2}), 20);
  EXPECT_EQ(runs({{}, {}, {}, {}, {}, 8}), 1);
}

TEST(TensorSlice, AnErrorEndsTheRuns) {
  int calls = 0;
  const auto result =
      for_each_run({{3, 4}, {0, 0}, {3, 2}, {0, 0}, {3, 2}, 1}, [&](ByteRun) -> Result<void> {
        calls++;
        return fail(Errc::failed, "enough");
      });
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(calls, 1);
}

TEST(TensorSlice, ParsesRanges) {
  const auto slice = parse_slice("0:1024,:,3:,:7").value();
  ASSERT_EQ(slice.size(), 4U);
  EXPECT_EQ(slice[0].begin, 0U);
  EXPECT_EQ(slice[0].end, 1024U);
  EXPECT_EQ(slice[1].end, kToEnd);
  EXPECT_EQ(slice[2].begin, 3U);
  EXPECT_EQ(slice[2].end, kToEnd);
  EXPECT_EQ(slice[3].end, 7U);
  for (const char* bad : {"", "1", "1:2:3", "a:b", "-1:2", "2:1", "1:2,", ",1:2", "1:2,,3:4",
                          " 1:2", "18446744073709551616:"}) {
    const auto result = parse_slice(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, Errc::usage);
  }
}

TEST(TensorSlice, FitsToAShape) {
  const auto fitted = fit_slice({{1, 3}, {0, kToEnd}}, {2, 4, 5}).value();
  ASSERT_EQ(fitted.size(), 3U);
  EXPECT_EQ(fitted[0].begin, 1U);
  EXPECT_EQ(fitted[0].end, 2U);
  EXPECT_EQ(fitted[1].end, 4U);
  EXPECT_EQ(fitted[2].end, 5U);
  EXPECT_FALSE(fit_slice({{3, 4}}, {2}).ok());
  EXPECT_FALSE(fit_slice({{0, 1}, {0, 1}}, {2}).ok());
  EXPECT_TRUE(fit_slice({{2, 4}}, {2}).ok());  // nothing of it
}

}  // namespace
}  // namespace ff::checkpoint
