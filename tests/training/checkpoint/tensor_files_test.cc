// Selected, sliced and resharded tensors, compared with a model that works on single elements.
#include "training/checkpoint/load/tensor_files.h"

#include <gtest/gtest.h>

#include "training/checkpoint/fixture.h"

namespace ff::checkpoint {
namespace {

// The elements of `data` whose index lies in [begin, end) in every dimension, in row-major order.
std::string cut(const std::string& data, const std::vector<uint64_t>& shape, size_t width,
                const std::vector<SliceRange>& ranges) {
  std::string out;
  const uint64_t count = elements(shape);
  for (uint64_t n = 0; n < count; n++) {
    uint64_t rest = n;
    bool inside = true;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i]) {
      const uint64_t at = rest % shape[i];
      inside = inside && at >= ranges[i].begin && at < ranges[i].end;
    }
    if (inside) out += data.substr(n * width, width);
  }
  return out;
}

// The `part`th of `parts` equal slices along a dimension.
TensorSpec part_of(const TensorSpec& whole, size_t dimension, uint64_t part, uint64_t parts,
                   size_t width) {
  std::vector<SliceRange> ranges;
  for (const uint64_t length : whole.shape) ranges.push_back({0, length});
  const uint64_t length = whole.shape[dimension] / parts;
  ranges[dimension] = {part * length, (part + 1) * length};
  TensorSpec out = whole;
  out.shape[dimension] = length;
  out.data = cut(whole.data, whole.shape, width, ranges);
  return out;
}

void expect_equal(const TensorSpec& got, const TensorSpec& wanted) {
  EXPECT_EQ(got.dtype, wanted.dtype) << wanted.name;
  EXPECT_EQ(got.shape, wanted.shape) << wanted.name;
  EXPECT_TRUE(got.data == wanted.data) << wanted.name;
}

class TensorFiles : public CheckpointTest {};

TEST_F(TensorFiles, GlobsChooseTensors) {
  const std::vector<TensorSpec> tensors = {
      {"layer.0.weight", "F32", {100, 300}, noise(1, 120'000)},
      {"layer.0.bias", "F32", {300}, noise(2, 1200)},
      {"layer.1.weight", "BF16", {1300, 1000}, noise(3, 2'600'000)},
      {"embed", "F16", {1100, 2048}, noise(4, 4'505'600)},
      {"empty", "F32", {0, 4}, ""}};
  save_file("a.safetensors", make_safetensors(tensors, SafetensorsMetadata{{"format", "pt"}}), 1);
  FF_ASSERT_OK(load({.name = "default@1",
                     .dest = path("out"),
                     .rank = {},
                     .tensors = {"*.weight", "empty"},
                     .slice = {},
                     .reshard = {}}));
  const std::string wanted =
      make_safetensors({tensors[0], tensors[2], tensors[4]}, SafetensorsMetadata{{"format", "pt"}});
  EXPECT_EQ(tree_of(path("out")).size(), 1U);
  EXPECT_TRUE(read_whole(path("out/a.safetensors")) == wanted);

  const auto none = load({.name = "default@1",
                          .dest = path("none"),
                          .rank = {},
                          .tensors = {"nothing*"},
                          .slice = {},
                          .reshard = {}});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(TensorFiles, SlicesMatchTheModel) {
  const size_t width = 2;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    TensorSpec tensor{"t", "BF16", {}, {}};
    for (uint64_t d = 1 + rng.below(4); d > 0; d--) tensor.shape.push_back(1 + rng.below(12));
    if (seed % 4 == 0) tensor.shape[0] = 100'000;  // several chunks
    tensor.data = noise(seed, elements(tensor.shape) * width);
    std::vector<SliceRange> slice;
    std::vector<SliceRange> fitted;
    TensorSpec wanted = tensor;
    for (size_t i = 0; i < tensor.shape.size(); i++) {
      const uint64_t begin = rng.below(tensor.shape[i] + 1);
      const uint64_t end = begin + rng.below(tensor.shape[i] + 3 - begin);
      slice.push_back({begin, end});
      fitted.push_back({begin, std::min(end, tensor.shape[i])});
      wanted.shape[i] = fitted[i].end - begin;
    }
    wanted.data = cut(tensor.data, tensor.shape, width, fitted);
    const TensorSpec other{"other", "U8", {3}, "abc"};
    save_file("a.safetensors", make_safetensors({other, tensor}), seed);
    const std::string out = path("out" + std::to_string(seed));
    FF_ASSERT_OK(load({.name = "default@" + std::to_string(seed),
                       .dest = out,
                       .rank = {},
                       .tensors = {"t"},
                       .slice = slice,
                       .reshard = {}}));
    expect_equal(tensors_of(read_whole(out + "/a.safetensors")).at("t"), wanted);
  }
}

// Saves what W ranks hold of some tensors split along several dimensions, and of one that all
// hold, and loads it for M ranks.
TEST_F(TensorFiles, ReshardsFromAnyWorldToAnyOther) {
  const std::vector<TensorSpec> whole = {
      {"rows.w", "F32", {24, 5, 7}, noise(1, 3360)},
      {"columns.w", "BF16", {10, 48, 3}, noise(2, 2880)},
      {"last.w", "U8", {2, 3, 4, 24}, noise(3, 576)},
      {"large.rows", "F64", {1200, 1000}, noise(4, 9'600'000)},
      {"large.columns", "F64", {501, 2400}, noise(5, 9'619'200)},
  };
  const std::vector<size_t> dimensions = {0, 1, 3, 0, 1};
  const std::vector<size_t> widths = {4, 2, 1, 8, 8};
  const TensorSpec shared{"norm", "F32", {16}, noise(6, 64)};
  const std::vector<SplitRule> rules = {
      {"rows.w", 0}, {"columns.w", 1}, {"last.w", 3}, {"large.rows", 0}, {"large.columns", 1}};
  for (const uint32_t world : {2U, 3U, 4U}) {
    for (uint32_t rank = 0; rank < world; rank++) {
      std::vector<TensorSpec> mine;
      for (size_t i = 0; i < whole.size(); i++) {
        mine.push_back(part_of(whole[i], dimensions[i], rank, world, widths[i]));
      }
      mine.push_back(shared);
      SaveOptions options;
      options.rank = rank;
      options.world = world;
      options.attempt = "a";
      options.splits = rules;
      save_file("model.safetensors", make_safetensors(mine), world, options);
    }
    for (const uint32_t parts : {1U, 3U, 4U}) {
      SCOPED_TRACE(fmt::format("{} ranks to {}", world, parts));
      const std::string out = path(fmt::format("out-{}-{}", world, parts));
      FF_ASSERT_OK(load({.name = fmt::format("default@{}", world),
                         .dest = out,
                         .rank = {},
                         .tensors = {},
                         .slice = {},
                         .reshard = parts}));
      ASSERT_EQ(tree_of(out).size(), parts);
      for (uint32_t part = 0; part < parts; part++) {
        const auto got = tensors_of(
            read_whole(fmt::format("{}/rank-{:05}-of-{:05}.safetensors", out, part, parts)));
        ASSERT_EQ(got.size(), whole.size() + 1);
        for (size_t i = 0; i < whole.size(); i++) {
          expect_equal(got.at(whole[i].name),
                       part_of(whole[i], dimensions[i], part, parts, widths[i]));
        }
        expect_equal(got.at("norm"), shared);
      }
    }
    const auto uneven = load({.name = fmt::format("default@{}", world),
                              .dest = path("uneven"),
                              .rank = {},
                              .tensors = {},
                              .slice = {},
                              .reshard = 5});
    ASSERT_FALSE(uneven.ok());
    EXPECT_NE(uneven.error().message.find("equal parts"), std::string::npos);
    EXPECT_FALSE(fs::exists(path("uneven")));
  }
}

// A small tensor shares its chunk with its neighbours, so copies on two ranks lie in different
// chunks when the neighbours differ. They still are one tensor.
TEST_F(TensorFiles, CopiesWithDifferentNeighboursAreOneTensor) {
  const TensorSpec norm{"norm", "F32", {16}, noise(1, 64)};
  for (uint32_t rank = 0; rank < 2; rank++) {
    SaveOptions options;
    options.rank = rank;
    options.world = 2;
    options.attempt = "a";
    options.splits = {{"mine", 0}};
    save_file("model.safetensors",
              make_safetensors({{"mine", "F32", {4}, noise(10 + rank, 16)}, norm}), 1, options);
  }
  FF_ASSERT_OK(load({.name = "default@1",
                     .dest = path("out"),
                     .rank = {},
                     .tensors = {},
                     .slice = {},
                     .reshard = 1}));
  const auto got = tensors_of(read_whole(path("out/rank-00000-of-00001.safetensors")));
  expect_equal(got.at("norm"), norm);
  EXPECT_EQ(got.at("mine").data, noise(10, 16) + noise(11, 16));
}

TEST_F(TensorFiles, DifferentTensorsOfOneNameAreRefused) {
  for (uint32_t rank = 0; rank < 2; rank++) {
    SaveOptions options;
    options.rank = rank;
    options.world = 2;
    options.attempt = "a";
    save_file("model.safetensors", make_safetensors({{"w", "F32", {4}, noise(rank, 16)}}), 1,
              options);
  }
  const auto loaded = load({.name = "default@1",
                            .dest = path("out"),
                            .rank = {},
                            .tensors = {},
                            .slice = {},
                            .reshard = 1});
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("'w' differs"), std::string::npos)
      << loaded.error().message;
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace ff::checkpoint
