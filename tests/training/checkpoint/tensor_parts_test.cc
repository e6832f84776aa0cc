// Slices and objects that a safetensors file declares: what a save makes of them, exports and other
// numbers of ranks; and whether slices make up their tensor, compared with counting elements.
#include "training/checkpoint/format/tensor_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/slice_cover.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/options.h"

namespace ff::checkpoint {
namespace {

struct PartBox {
  std::vector<uint64_t> start;
  std::vector<uint64_t> shape;
};

// The bytes of a box of a matrix of one-byte elements.
std::string box_of(const std::string& whole, uint64_t columns, const PartBox& box) {
  std::string out;
  for (uint64_t row = 0; row < box.shape[0]; row++) {
    out += whole.substr((box.start[0] + row) * columns + box.start[1], box.shape[1]);
  }
  return out;
}

std::string slice_json(const std::string& name, const std::string& whole, const PartBox& box) {
  return fmt::format(R"("{}":{{"tensor":"{}","shape":[6,4],"start":[{}]}})", name, whole,
                     fmt::join(box.start, ","));
}

class Parts : public CheckpointTest {
 protected:
  // Saves boxes of "w" (6 x 4), one or several a rank, and an object on each rank.
  Result<SaveReport> save_boxes(const std::vector<std::vector<PartBox>>& ranks,
                                const std::string& dtype = "U8") {
    Result<SaveReport> report = SaveReport{};
    const std::string attempt = std::to_string(++attempts_);
    for (uint32_t rank = 0; rank < ranks.size(); rank++) {
      std::vector<TensorSpec> tensors = {{"note", "U8", {3}, "abc"}, {"same", "U8", {2}, "xy"}};
      std::string json;
      for (const auto& box : ranks[rank]) {
        const std::string name = json.empty() ? "w" : "w~" + std::to_string(tensors.size());
        tensors.push_back({name, rank == 0 ? "U8" : dtype, box.shape, box_of(whole_, 4, box)});
        json += (json.empty() ? "" : ",") + slice_json(name, "w", box);
      }
      json = fmt::format(R"({{"slices":{{{}}},"objects":["note"]}})", json);
      SaveOptions options;
      options.step = 1;
      options.rank = rank;
      options.world = static_cast<uint32_t>(ranks.size());
      options.attempt = attempt;
      const std::string file = path("m.safetensors");
      write_whole(file, make_safetensors(tensors, SafetensorsMetadata{{"ff.parts", json}}));
      report = save({file}, options);
      if (!report) break;
    }
    return report;
  }
  std::map<std::string, TensorSpec> exported(ExportOptions options = {}) {
    options.name = "default";
    options.out = path("out.safetensors");
    options.force = true;
    auto ctx = context();
    const auto report = export_safetensors(ctx, store(), options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? tensors_of(read_whole(options.out)) : std::map<std::string, TensorSpec>();
  }
  void expect_refused(const std::string& json, std::string_view words) {
    SCOPED_TRACE(json);
    write_whole(path("bad.safetensors"), make_safetensors({{"w", "U8", {2, 4}, noise(1, 8)}},
                                                          SafetensorsMetadata{{"ff.parts", json}}));
    const auto saved = save({path("bad.safetensors")});
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error().code, Errc::failed);
    EXPECT_NE(saved.error().message.find("bad.safetensors"), std::string::npos);
    EXPECT_NE(saved.error().message.find(words), std::string::npos) << saved.error().message;
  }

  int attempts_ = 0;
  const std::string whole_ = noise(5, 24);
  // Two ranks: one has two boxes, in another order than that of their elements.
  const std::vector<std::vector<PartBox>> boxes_ = {{{{3, 1}, {3, 3}}, {{0, 0}, {3, 4}}},
                                                    {{{3, 0}, {3, 1}}}};
};

TEST_F(Parts, BoxesOfAllRanksAreExportedAsOneTensor) {
  FF_ASSERT_OK(save_boxes(boxes_));
  const auto got = exported();
  ASSERT_EQ(got.size(), 2U);  // without the objects
  EXPECT_EQ(got.at("w").data, whole_);
  EXPECT_EQ(got.at("w").shape, (std::vector<uint64_t>{6, 4}));
  EXPECT_EQ(got.at("same").data, "xy");
  EXPECT_EQ(read_whole(path("out.safetensors")).find("__metadata__"), std::string::npos);
  ExportOptions only_w;
  only_w.tensors = {"w"};
  EXPECT_EQ(exported(only_w).at("w").data, whole_);
}

TEST_F(Parts, BoxesAreSplitForOtherRanks) {
  FF_ASSERT_OK(save_boxes(boxes_));
  LoadOptions options = load_to("default@1", path("out"));
  options.reshard = 2;
  FF_ASSERT_OK(load(options));
  for (uint64_t part = 0; part < 2; part++) {
    const auto got = tensors_of(
        read_whole(fmt::format("{}/rank-{:05}-of-00002.safetensors", path("out"), part)));
    EXPECT_EQ(got.at("w").data, whole_.substr(12 * part, 12));
    EXPECT_EQ(got.at("same").data, "xy");
  }
}

TEST_F(Parts, TheIndexHasThem) {
  FF_ASSERT_OK(save_boxes(boxes_));
  auto reader = IndexReader::open(disk_, index_path()).value();
  std::map<std::string, TensorRecord> first;
  while (auto record = reader.next().value()) {
    if (auto* tensor = std::get_if<TensorRecord>(&*record))
      first.try_emplace(tensor->name, *tensor);
  }
  ASSERT_EQ(first.size(), 4U);
  EXPECT_TRUE(first.at("note").is_object);
  EXPECT_FALSE(first.at("same").is_object);
  EXPECT_TRUE(first.at("w").slice_of.empty());
  const TensorRecord& second = first.at("w~3");
  EXPECT_EQ(whole_name(second), "w");
  EXPECT_EQ(second.global_shape, (std::vector<uint64_t>{6, 4}));
  EXPECT_EQ(second.slice_start, (std::vector<uint64_t>{0, 0}));
  FF_ASSERT_OK(load(load_to("default@1", path("all"))));  // the files, byte for byte
  EXPECT_NE(read_whole(path("all/rank-00000/m.safetensors")).find("ff.parts"), std::string::npos);
}

TEST_F(Parts, SlicesThatAreNotTheWholeTensorDoNotCommit) {
  auto missing = boxes_;
  missing[1][0].shape = {2, 1};
  const auto incomplete = save_boxes(missing);
  ASSERT_FALSE(incomplete.ok());
  EXPECT_NE(incomplete.error().message.find("'w': its slices have 23 elements instead of 24"),
            std::string::npos)
      << incomplete.error().message;
  auto twice = boxes_;
  twice[1][0].start = {2, 0};
  const auto overlapping = save_boxes(twice);
  ASSERT_FALSE(overlapping.ok());
  EXPECT_NE(overlapping.error().message.find("'w': two of its slices overlap"), std::string::npos)
      << overlapping.error().message;
  const auto other = save_boxes(boxes_, "I8");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("'w': its slices differ in type"), std::string::npos);
  EXPECT_FALSE(fs::exists(index_path()));
  FF_ASSERT_OK(save_boxes(boxes_));
}

TEST_F(Parts, TextsThatDoNotFitAreRefused) {
  for (const std::string json :
       {"", "[]", "{", R"({"slices":[]})", R"({"objects":{}})", R"({"objects":["w","w"]})",
        R"({"objects":[["w"]]})", R"({"objects":[1]})", R"({"slices":{"w":1}})",
        R"({"slices":{"w":{"tensor":"v"}}})", R"({"slices":{"w":{"shape":[4,4],"start":[0,0]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[4,4],"start":[0]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[4,-4],"start":[0,0]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[4,4],"start":[0,0],"more":[1]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[4,[4]],"start":[0,0]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[],"start":[]}}})",
        R"({"slices":{"w":{"tensor":"v","shape":[4,4],"start":[0,9223372036854775807]}}})",
        R"({"other":1})"}) {
    expect_refused(json, "its text ff.parts");
  }
  expect_refused(R"({"slices":{"w":{"tensor":"v","shape":[4,4],"start":[3,0]}}})", "'w'");
  expect_refused(R"({"slices":{"w":{"tensor":"v","shape":[1,4],"start":[0,0]}}})", "'w'");
  expect_refused(R"({"slices":{"w":{"tensor":"v","shape":[8],"start":[0]}}})", "'w'");
  expect_refused(R"({"objects":["v"]})", "does not have");
  SaveOptions opaque;
  opaque.opaque = {"*"};
  FF_ASSERT_OK(save({path("bad.safetensors")}, opaque));
}

TEST_F(Parts, ASplitOfASliceIsRefused) {
  write_whole(path("m.safetensors"),
              make_safetensors(
                  {{"w", "U8", {2, 4}, noise(1, 8)}},
                  SafetensorsMetadata{
                      {"ff.parts", "{\"slices\":{" + slice_json("w", "w", {{0, 0}, {}}) + "}}"}}));
  SaveOptions options;
  options.step = 1;
  options.world = 2;
  options.attempt = "a";
  options.splits = {{"*", 0}};
  const auto saved = save({path("m.safetensors")}, options);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, Errc::usage);
}

// Boxes of small tensors, of which each element is counted.
TEST(SliceCoverTest, IsWhatCountingSays) {
  SeededRng rng(11);
  unsigned whole = 0;
  for (int round = 0; round < 3000; round++) {
    const std::vector<uint64_t> shape = {1 + rng.next() % 4, 1 + rng.next() % 4};
    std::vector<unsigned> counts(shape[0] * shape[1]);
    SliceCover cover;
    const uint64_t slices = 1 + rng.next() % 4;
    const uint64_t row = rng.next() % (shape[0] + 1);  // where some of the boxes meet
    for (uint64_t i = 0; i < slices; i++) {
      std::vector<uint64_t> start = {i % 2 == 0 ? 0 : row, 0};
      std::vector<uint64_t> size = {i % 2 == 0 ? row : shape[0] - row, shape[1]};
      if (rng.next() % 3 == 0) {
        start[1] = rng.next() % shape[1];
        size[1] = rng.next() % (shape[1] - start[1] + 1);
      }
      cover.add(start, size);
      for (uint64_t y = start[0]; y < start[0] + size[0]; y++) {
        for (uint64_t x = start[1]; x < start[1] + size[1]; x++) counts[y * shape[1] + x]++;
      }
    }
    const bool once = std::ranges::all_of(counts, [](unsigned count) { return count == 1; });
    ASSERT_EQ(cover.check(shape).ok(), once) << "round " << round;
    whole += once ? 1 : 0;
  }
  EXPECT_GT(whole, 100U);
}

TEST(SliceCoverTest, LargeNumbersDoNotOverflow) {
  const uint64_t large = uint64_t{1} << 62;
  SliceCover cover;
  cover.add({0, 0}, {large, large});
  EXPECT_FALSE(cover.check({large, large}).ok());
  EXPECT_TRUE(SliceCover().check({0, large}).ok());
  EXPECT_FALSE(SliceCover().check({1}).ok());
}

TEST(SliceCoverTest, ManySlices) {
  SliceCover grid;
  for (uint64_t y = 0; y < 300; y++) {
    for (uint64_t x = 0; x < 300; x++) grid.add({2 * y, 3 * x}, {2, 3});
  }
  EXPECT_TRUE(grid.check({600, 900}).ok());
  grid.add({0, 0}, {1, 1});
  EXPECT_FALSE(grid.check({600, 900}).ok());
}

}  // namespace
}  // namespace ff::checkpoint
