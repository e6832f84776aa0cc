// Salvage restores everything that is intact, and reports everything else.
#include "training/checkpoint/load/salvage.h"

#include <gtest/gtest.h>

#include "platform/base/text.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/index.h"

namespace ff::checkpoint {
namespace {

class Salvage : public CheckpointTest {
 protected:
  Result<SalvageReport> run(const std::string& name = "default@1") {
    fs::remove_all(path("out"));
    auto ctx = context();
    return salvage(ctx, store(), {.name = name, .dest = path("out")});
  }

  // Two safetensors files, other files, a directory and a link.
  void make_checkpoint() {
    write_whole(path("in/a.safetensors"), make_safetensors(first_, kMetadata));
    write_whole(path("in/b.safetensors"), make_safetensors(second_));
    write_whole(path("in/notes.txt"), noise(20, 5000));
    write_whole(path("in/empty"), "");
    fs::create_directory(path("in/sub"));
    fs::create_symlink("notes.txt", path("in/link"));
    SaveOptions options;
    options.step = 1;
    FF_ASSERT_OK(save({path("in")}, options));
    wanted_ = tree_of(path("in"));
  }

  // The first line of the index that holds `text`.
  std::pair<size_t, size_t> line_with(const std::string& text) {
    const std::string index = read_whole(index_path());
    const size_t at = index.find(text);
    EXPECT_NE(at, std::string::npos);
    const size_t begin = index.rfind('\n', at) + 1;
    return {begin, index.find('\n', at)};
  }

  // The file of the chunk that the index line with `text` names first.
  fs::path chunk_of(const std::string& text) {
    const auto [begin, end] = line_with(text);
    const std::string line = read_whole(index_path()).substr(begin, end - begin);
    const size_t at = line.find("[[\"") + 3;
    const std::string hex = line.substr(at, line.find('"', at) - at);
    return store() + "/chunks/" + hex.substr(0, 2) + "/" + hex;
  }

  static const SafetensorsMetadata kMetadata;
  std::vector<TensorSpec> first_ = {{"one", "U8", {2'000'000}, noise(1, 2'000'000)},
                                    {"two", "F32", {400'000}, noise(2, 1'600'000)},
                                    {"three", "BF16", {600, 1000}, noise(3, 1'200'000)}};
  std::vector<TensorSpec> second_ = {{"four", "U8", {1'500'000}, noise(4, 1'500'000)},
                                     {"five", "U8", {1'600'000}, noise(5, 1'600'000)}};
  std::map<std::string, std::string> wanted_;
};
const SafetensorsMetadata Salvage::kMetadata = {{"format", "pt"}};

TEST_F(Salvage, WithoutDamageItIsALoad) {
  make_checkpoint();
  const auto report = run();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->lost_count, 0U);
  EXPECT_EQ(report->files_partial, 0U);
  EXPECT_EQ(report->files_whole, 7U);
  EXPECT_EQ(report->tensors, 5U);
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);
}

TEST_F(Salvage, ADamagedTensorIsLeftOut) {
  make_checkpoint();
  flip_bit(chunk_of("\"two\""), 8 * 4096);
  const auto report = run();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->lost_count, 1U);
  EXPECT_EQ(report->lost[0].tensor, "two");
  EXPECT_EQ(report->lost[0].file, "in/a.safetensors");
  EXPECT_NE(report->lost[0].reason.find("CRC32C"), std::string::npos) << report->lost[0].reason;
  EXPECT_EQ(report->files_partial, 1U);
  EXPECT_EQ(report->files_whole, 6U);
  EXPECT_EQ(report->tensors, 4U);
  wanted_["a.safetensors"] = make_safetensors({first_[0], first_[2]}, kMetadata);
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);
}

TEST_F(Salvage, ADamagedHeaderCostsOnlyMetadata) {
  make_checkpoint();
  fs::remove(chunk_of("\"in/a.safetensors\""));
  const auto report = run();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->lost_count, 1U);
  EXPECT_EQ(report->lost[0].tensor, "");
  EXPECT_EQ(report->lost[0].file, "in/a.safetensors");
  wanted_["a.safetensors"] = make_safetensors(first_);
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);
}

TEST_F(Salvage, ADamagedOpaqueFileIsLeftOut) {
  make_checkpoint();
  fs::resize_file(chunk_of("\"in/notes.txt\""), 5000);
  const auto report = run();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->lost_count, 1U);
  EXPECT_EQ(report->lost[0].file, "in/notes.txt");
  wanted_.erase("notes.txt");
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);
}

// Flips a bit in each line of the index in turn: everything but the content of that line is
// restored.
TEST_F(Salvage, ADamagedIndexLineCostsOnlyItsEntry) {
  make_checkpoint();
  const std::string good = read_whole(index_path());
  const auto damage = [&](const std::string& text) {
    const auto [begin, end] = line_with(text);
    flip_bit(index_path(), (end - 20) * 8);
    const auto report = run();
    write_whole(index_path(), good);
    EXPECT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->lost_count, 1U);
    return *report;
  };
  damage("ff_checkpoint");
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);

  auto report = damage("\"two\"");
  EXPECT_EQ(report.lost[0].tensor, "two");
  EXPECT_EQ(report.lost[0].file, "in/a.safetensors");
  auto tree = wanted_;
  tree["a.safetensors"] = make_safetensors({first_[0], first_[2]}, kMetadata);
  EXPECT_TRUE(tree_of(path("out/in")) == tree);

  // The last tensor of the last file: nothing of it stands behind.
  report = damage("\"five\"");
  EXPECT_EQ(report.lost[0].tensor, "five");
  tree = wanted_;
  tree["b.safetensors"] = make_safetensors({second_[0]});
  EXPECT_TRUE(tree_of(path("out/in")) == tree);

  // A file line: its tensors must not land in the file before it.
  report = damage("\"in/b.safetensors\"");
  EXPECT_EQ(report.lost[0].file, "in/b.safetensors");
  tree = wanted_;
  tree.erase("b.safetensors");
  EXPECT_TRUE(tree_of(path("out/in")) == tree);
  std::string rescued;
  for (const auto& [name, content] : tree_of(path("out"))) {
    if (name.starts_with("salvaged-line-")) rescued = content;
  }
  EXPECT_TRUE(rescued == make_safetensors(second_));

  damage("\"end\"");
  EXPECT_TRUE(tree_of(path("out/in")) == wanted_);
}

TEST_F(Salvage, AnyBitOfASmallIndex) {
  write_whole(path("in/a.safetensors"),
              make_safetensors({{"x", "U8", {5}, "abcde"}, {"y", "U8", {3}, "fgh"}}));
  write_whole(path("in/b.txt"), "text");
  SaveOptions options;
  options.step = 1;
  FF_ASSERT_OK(save({path("in")}, options));
  const std::string good = read_whole(index_path());
  SeededRng rng(3);
  for (int i = 0; i < 40; i++) {
    const uint64_t bit = rng.below(good.size() * 8);
    SCOPED_TRACE(bit);
    flip_bit(index_path(), bit);
    const auto report = run();
    write_whole(index_path(), good);
    FF_ASSERT_OK(report);
    EXPECT_GE(report->lost_count, 1U);
    // What came back is what was saved.
    for (const auto& [name, content] : tree_of(path("out"))) {
      if (name.ends_with("b.txt")) {
        EXPECT_EQ(content, "text");
      }
      if (!name.ends_with(".safetensors")) continue;
      for (const auto& [tensor, spec] : tensors_of(content)) {
        EXPECT_EQ(spec.data, tensor == "x" ? "abcde" : "fgh");
      }
    }
  }
}

TEST_F(Salvage, AnIndexCutShort) {
  make_checkpoint();
  const auto [begin, end] = line_with("\"five\"");
  fs::resize_file(index_path(), end - 30);
  const auto report = run();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->lost_count, 2U);  // the line, and whatever came after it
  EXPECT_TRUE(read_whole(path("out/in/b.safetensors")) == make_safetensors({second_[0]}));
  EXPECT_TRUE(read_whole(path("out/in/a.safetensors")) == wanted_["a.safetensors"]);
}

TEST_F(Salvage, WithNothingLeftThereIsNoDestination) {
  save_file("a.bin", noise(1, 100'000), 1);
  for (const auto& chunk : chunk_files()) fs::remove(chunk);
  const auto report = run();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::corrupt);
  EXPECT_FALSE(fs::exists(path("out")));
  for (const auto& entry : fs::directory_iterator(dir_)) {
    EXPECT_EQ(entry.path().filename().string().find("unfinished"), std::string::npos);
  }
}

TEST_F(Salvage, RanksWithTheSameNames) {
  const std::vector<TensorSpec> ranks[2] = {first_, second_};
  for (uint32_t rank = 0; rank < 2; rank++) {
    SaveOptions options;
    options.rank = rank;
    options.world = 2;
    options.attempt = "a";
    save_file("m.safetensors", make_safetensors(ranks[rank]), 1, options);
  }
  flip_bit(chunk_of("\"four\""), 8 * 4096);
  const auto report = run();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->lost_count, 1U);
  const auto tree = tree_of(path("out"));
  EXPECT_TRUE(tree.at("rank-00000/m.safetensors") == make_safetensors(first_));
  EXPECT_TRUE(tree.at("rank-00001/m.safetensors") == make_safetensors({second_[1]}));
}

TEST_F(Salvage, TheReportIsBounded) {
  for (int i = 0; i < 1100; i++) {
    write_whole(path("in/" + std::to_string(i)), "text " + std::to_string(i));
  }
  write_whole(path("in/good"), "");
  SaveOptions options;
  options.step = 1;
  FF_ASSERT_OK(save({path("in")}, options));
  for (const auto& chunk : chunk_files()) fs::remove(chunk);
  const auto report = run();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->lost.size(), kLostShown);
  EXPECT_EQ(report->lost_count, 1100U);
  EXPECT_EQ(tree_of(path("out/in")).size(), 1U);
}

TEST_F(Salvage, WorksWithoutTheStoreFile) {
  for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
    fs::remove_all(store());
    fs::remove_all(path("in"));
    write_whole(path("in/a.safetensors"), make_safetensors(first_, kMetadata));
    SaveOptions options;
    options.step = 1;
    options.digest = kind;
    FF_ASSERT_OK(save({path("in")}, options));
    const auto whole = run();
    FF_ASSERT_OK(whole);
    EXPECT_FALSE(whole->store_file_damaged);
    flip_bit(store() + "/ff-store.json", 100);
    for (const bool gone : {false, true}) {
      if (gone) fs::remove(store() + "/ff-store.json");
      const auto report = run();
      FF_ASSERT_OK(report);
      EXPECT_TRUE(report->store_file_damaged);
      EXPECT_EQ(report->lost_count, 0U);
      EXPECT_EQ(tree_of(path("out/in")), tree_of(path("in")));
    }
  }
}

TEST_F(Salvage, ADestinationWithFilesIsRefused) {
  save_file("a.bin", noise(1, 1000), 1);
  write_whole(path("other/file"), "precious");
  auto ctx = context();
  const auto report = salvage(ctx, store(), {.name = "default", .dest = path("other")});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Errc::refused);
  EXPECT_EQ(tree_of(path("other")).size(), 1U);
}

}  // namespace
}  // namespace ff::checkpoint
