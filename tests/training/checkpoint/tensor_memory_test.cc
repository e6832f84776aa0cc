// Memory to memory: saves of open files, and loads of tensors without files.
#include "training/checkpoint/load/tensor_memory.h"

#include "platform/io/memory_file.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/options.h"

namespace ff::checkpoint {
namespace {

class TensorMemoryTest : public CheckpointTest {
 protected:
  // Of a file whose bytes lie in three parts.
  Result<SaveReport> save_memory(std::string content, SaveOptions options = {},
                                 const std::string& name = "state.safetensors") {
    const ByteSpan all(reinterpret_cast<std::byte*>(content.data()), content.size());
    const auto file = std::make_shared<io::MemoryFile>(
        name, std::vector<ByteSpan>{all.first(7), all.subspan(7, 100'000), all.subspan(100'007)});
    auto ctx = context();
    return ff::checkpoint::save(
        ctx, store(), {.paths = {}, .stream = {}, .open = {{.name = name, .file = file}}}, options);
  }

  // The bytes of all chosen tensors by name; the memory is dirty before.
  Result<std::map<std::string, std::string>> load_memory(TensorMemoryOptions options) {
    auto ctx = context();
    FF_TRY(const auto found, TensorMemory::plan(ctx, store(), options));
    std::vector<std::string> texts;
    std::vector<std::byte*> into;
    for (const auto& tensor : found->tensors()) texts.emplace_back(tensor.bytes, '\x5a');
    for (auto& text : texts) into.push_back(reinterpret_cast<std::byte*>(text.data()));
    FF_TRY(found->read(into));
    std::map<std::string, std::string> loaded;
    for (size_t i = 0; i < texts.size(); i++) loaded[found->tensors()[i].name] = texts[i];
    return loaded;
  }

  const std::vector<TensorSpec> tensors_ = {
      {"small", "F32", {3}, noise(1, 12)},
      {"empty", "F32", {0, 4}, ""},
      {"large", "U8", {9'000'001}, noise(2, 9'000'001)},
      {"tail.a", "BF16", {5, 7}, noise(3, 70)},
      {"tail.b", "U8", {100}, noise(4, 100)},
      {"zeros", "U8", {5'000'000}, std::string(5'000'000, '\0')}};
  const std::string content_ = make_safetensors(tensors_, SafetensorsMetadata{{"a", "b"}});
};

TEST_F(TensorMemoryTest, WhatIsSavedFromMemoryIsTheSameFile) {
  FF_ASSERT_OK(save_memory(content_));
  FF_ASSERT_OK(load(load_to("default", path("out"))));
  EXPECT_TRUE(read_whole(path("out/state.safetensors")) == content_);
  // And has the same chunks as from a file.
  write_whole(path("state.safetensors"), content_);
  const auto again = save({path("state.safetensors")});
  FF_ASSERT_OK(again);
  EXPECT_EQ(again->chunks_new, 0u);
  EXPECT_EQ(again->tensors, tensors_.size());
}

TEST_F(TensorMemoryTest, InvalidInputsAreRefused) {
  EXPECT_EQ(save_memory(std::string(200'000, 'x')).error().code, Errc::failed);
  EXPECT_EQ(save_memory(content_, {}, "../up.safetensors").error().code, Errc::failed);
  EXPECT_FALSE(fs::exists(store() + "/runs/default/1/index.jsonl"));
}

TEST_F(TensorMemoryTest, LoadsEveryTensor) {
  FF_ASSERT_OK(save_memory(content_));
  for (const unsigned threads : {1U, 3U}) {
    threads_ = threads;
    const auto loaded = load_memory({.name = "default", .rank = {}, .tensors = {}});
    FF_ASSERT_OK(loaded);
    EXPECT_EQ(loaded->size(), tensors_.size());
    for (const auto& tensor : tensors_) EXPECT_TRUE(loaded->at(tensor.name) == tensor.data);
  }
}

TEST_F(TensorMemoryTest, ListsFilesAndTheirMetadata) {
  write_whole(path("a.safetensors"), content_);
  write_whole(path("b.safetensors"), make_safetensors({{"x", "I64", {2}, noise(5, 16)}}));
  write_whole(path("notes.txt"), "not a tensor");
  FF_ASSERT_OK(save({path("notes.txt"), path("a.safetensors"), path("b.safetensors")}));
  auto ctx = context();
  const auto all = TensorMemory::plan(ctx, store(), {.name = "@1", .rank = {}, .tensors = {}});
  FF_ASSERT_OK(all);
  ASSERT_EQ((*all)->files().size(), 2u);
  EXPECT_EQ((*all)->files()[0].metadata, (SafetensorsMetadata{{"a", "b"}}));
  EXPECT_EQ((*all)->files()[1].first, tensors_.size());
  EXPECT_EQ((*all)->files()[1].tensors, 1u);
  const auto some = TensorMemory::plan(ctx, store(), {.name = "@1", .rank = {}, .tensors = {"x"}});
  FF_ASSERT_OK(some);
  ASSERT_EQ((*some)->files().size(), 1u);
  EXPECT_EQ((*some)->files()[0].name, "b.safetensors");
  EXPECT_EQ((*some)->tensors()[0].shape, std::vector<uint64_t>{2});
}

TEST_F(TensorMemoryTest, ChoosesByNameAndRank) {
  for (const uint32_t rank : {0U, 1U}) {
    SaveOptions options;
    options.step = 4;
    options.rank = rank;
    options.world = 2;
    options.attempt = "a";
    FF_ASSERT_OK(save_memory(make_safetensors({{"mine", "U8", {200'000}, noise(10 + rank, 200'000)},
                                               {"other", "U8", {3}, "abc"}}),
                             options));
  }
  const auto one = load_memory({.name = "@4", .rank = 1, .tensors = {"m*"}});
  FF_ASSERT_OK(one);
  EXPECT_EQ(one->size(), 1u);
  EXPECT_TRUE(one->at("mine") == noise(11, 200'000));
  for (const TensorMemoryOptions& none :
       {TensorMemoryOptions{.name = "@4", .rank = 2, .tensors = {}},
        TensorMemoryOptions{.name = "@4", .rank = {}, .tensors = {"nothing"}},
        TensorMemoryOptions{.name = "@5", .rank = {}, .tensors = {}}}) {
    EXPECT_EQ(load_memory(none).error().code, Errc::not_found);
  }
}

TEST_F(TensorMemoryTest, DamageIsNamed) {
  FF_ASSERT_OK(save_memory(content_));
  for (const auto& chunk : chunk_files()) {
    const std::string before = read_whole(chunk);
    flip_bit(chunk, 8 * 4100 + 3);
    const auto loaded = load_memory({.name = "default", .rank = {}, .tensors = {}});
    ASSERT_FALSE(loaded.ok()) << chunk;
    EXPECT_EQ(loaded.error().code, Errc::corrupt);
    const bool named = loaded.error().message.find("tensor '") != std::string::npos ||
                       loaded.error().message.find("header of file") != std::string::npos;
    EXPECT_TRUE(named) << loaded.error().message;
    write_whole(chunk, before);
  }
  FF_ASSERT_OK(load_memory({.name = "default", .rank = {}, .tensors = {}}));
}

TEST_F(TensorMemoryTest, ACheckpointReplacedAfterPlanningIsDetected) {
  SaveOptions options;
  options.step = 1;
  FF_ASSERT_OK(save_memory(content_, options));
  auto ctx = context();
  const auto found = TensorMemory::plan(ctx, store(), {.name = "@1", .rank = {}, .tensors = {}});
  FF_ASSERT_OK(found);
  options.replace = true;
  FF_ASSERT_OK(
      save_memory(make_safetensors({{"small", "U8", {150'000}, noise(6, 150'000)}}), options));
  std::vector<std::string> texts;
  std::vector<std::byte*> into;
  for (const auto& tensor : (*found)->tensors()) texts.emplace_back(tensor.bytes, '\0');
  for (auto& text : texts) into.push_back(reinterpret_cast<std::byte*>(text.data()));
  const auto read = (*found)->read(into);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("replaced the checkpoint"), std::string::npos)
      << read.error().message;
}

}  // namespace
}  // namespace ff::checkpoint
