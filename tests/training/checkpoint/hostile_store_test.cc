// Stores that somebody has crafted: every action ends in an error that names what is wrong, and
// writes nothing outside its destination. Seals and checksums are right, so that they do not help.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "platform/simd/crc32c.h"
#include "platform/simd/digest.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/sealed_line.h"
#include "training/checkpoint/load/diff.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/load/salvage.h"
#include "training/checkpoint/load/tensor_memory.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

constexpr const char* kTwoTo61 = "2305843009213693952";  // 2^61
constexpr const char* kTwoTo62 = "4611686018427387904";  // 2^62

class HostileStore : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    data_ = noise(1, 5000);
    save_file("data", data_, 1);
    chunk_ = chunk_files().at(0).filename();
    fs::create_directory(path("outside"));
  }

  // An extent of the one chunk in the store.
  std::string extent(uint64_t offset, uint64_t length) const {
    const std::string part = data_.substr(offset, length);
    return fmt::format(R"(["{}",{},{},"{:08x}"])", chunk_, offset, length,
                       simd::crc32c(as_bytes(part)));
  }
  static std::string file(const std::string& name, const std::string& kind, const std::string& size,
                          const std::string& extents, unsigned rank = 0) {
    return fmt::format(R"({{"file":"{}","rank":{},"kind":"{}","size":{},"mode":420,"mtime_ns":0,)"
                       R"("target":"../outside","extents":[{}])",
                       name, rank, kind, size, extents);
  }
  static std::string tensor(const std::string& name, const std::string& shape, uint64_t offset,
                            const std::string& size, const std::string& extents,
                            const std::string& more = "") {
    return fmt::format(R"({{"tensor":"{}","dtype":"U8","shape":[{}],"offset":{},"size":{}{},)"
                       R"("extents":[{}])",
                       name, shape, offset, size, more, extents);
  }

  // Writes an index of these lines as a step of the default run.
  void craft(const std::vector<std::string>& lines, uint64_t step = 9) {
    std::string index = seal_line(fmt::format(
        R"({{"ff_checkpoint":1,"run":"default","step":{},"world":1,"digest":"xxh128")", step));
    for (const auto& line : lines) index += seal_line(line);
    const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(index)).digest.hex();
    index += seal_line(
        fmt::format(R"({{"end":true,"files":0,"tensors":0,"size":0,"content":"{}","index":"{}")",
                    digest, digest));
    write_whole(index_path(step), index);
  }

  LoadOptions all() const { return load_to("@9", path("out")); }
  LoadOptions tensors() const {
    LoadOptions options = all();
    options.tensors = {"*"};
    return options;
  }
  LoadOptions resharded() const {
    LoadOptions options = all();
    options.reshard = 1;
    return options;
  }

  // That a load fails with this code, names `name`, and leaves no destination.
  void expect_refused(const LoadOptions& options, Errc code, const std::string& name) {
    const auto loaded = load(options);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(name), std::string::npos) << loaded.error().message;
    EXPECT_FALSE(fs::exists(path("out")));
    EXPECT_TRUE(fs::is_empty(path("outside")));
  }

  Result<SalvageReport> salvage_all() {
    fs::remove_all(path("out"));
    auto ctx = context();
    return salvage(ctx, store(), {.name = "@9", .dest = path("out")});
  }
  Result<ExportReport> export_all() {
    ExportOptions options;
    options.name = "@9";
    options.out = path("out");
    auto ctx = context();
    return export_safetensors(ctx, store(), options);
  }

  std::string data_;
  std::string chunk_;
};

TEST_F(HostileStore, NamesStayBelowTheDestination) {
  for (const std::string name : {"../outside/x", "/tmp/x", "a/../../outside/x", "..", "."}) {
    craft({file(name, "opaque", "5", extent(0, 5))});
    expect_refused(all(), Errc::corrupt, index_path(9));
    craft({file(name, "symlink", "0", "")});
    expect_refused(all(), Errc::corrupt, index_path(9));
    craft({file(name, "directory", "0", "")});
    expect_refused(all(), Errc::corrupt, index_path(9));
  }
}

TEST_F(HostileStore, NoFileIsWrittenThroughALinkOfTheStore) {
  craft({file("away", "symlink", "0", ""), file("away/x", "opaque", "5", extent(0, 5))});
  const auto loaded = load(all());
  EXPECT_FALSE(loaded.ok());
  EXPECT_TRUE(fs::is_empty(path("outside")));
  (void)salvage_all();
  EXPECT_TRUE(fs::is_empty(path("outside")));
}

// Another program swaps a directory in the destination for a link out, again and again.
TEST_F(HostileStore, NoFileIsWrittenThroughALinkOfAnotherProgram) {
  std::vector<std::string> lines;
  for (int i = 0; i < 10; i++) {
    lines.push_back(file(fmt::format("sub/{}", i), "opaque", "5", extent(0, 5)));
  }
  craft(lines);
  fs::create_directory(path("dest"));
  std::atomic<bool> ends = false;
  std::thread swapper([&] {
    const std::string spare = path("spare");
    fs::create_directory_symlink(path("outside"), spare);
    while (!ends) {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(path("dest"), ignored)) {
        const std::string sub = entry.path() / "sub";
        for (int i = 0; i < 100; i++) {
          (void)::renameat2(AT_FDCWD, sub.c_str(), AT_FDCWD, spare.c_str(), RENAME_EXCHANGE);
        }
      }
    }
  });
  for (int i = 0; i < 60; i++) {
    (void)load(load_to("@9", path("dest")));
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path("dest"), ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
  }
  ends = true;
  swapper.join();
  EXPECT_TRUE(fs::is_empty(path("outside")));
}

TEST_F(HostileStore, TheDestinationMayBeALink) {
  fs::create_directory(path("real"));
  fs::create_directory_symlink(path("real"), path("link"));
  FF_ASSERT_OK(load(load_to("@1", path("link/"))));
  EXPECT_TRUE(read_whole(path("real/data")) == data_);
  FF_ASSERT_OK(load(load_to("@1", path("link/new"))));
  EXPECT_TRUE(read_whole(path("real/new/data")) == data_);
  EXPECT_EQ(tree_of(path("real")).size(), 3U);
}

TEST_F(HostileStore, SetIdBitsAreNotRestored) {
  const std::string line = file("program", "opaque", "5", extent(0, 5));
  craft({std::string(line).replace(line.find("420"), 3, "3565")});  // 06755
  FF_ASSERT_OK(load(all()));
  EXPECT_EQ(disk_.info(path("out/program"))->mode, 0755U);
}

// Once read_extents() made as many zeros in memory as the index said.
TEST_F(HostileStore, AHeaderOfZerosIsRefusedEverywhere) {
  craft({file("m", "safetensors", kTwoTo61, fmt::format("[{}]", kTwoTo61)),
         tensor("t", "0", 0, "0", "")});
  expect_refused(tensors(), Errc::corrupt, index_path(9));
  expect_refused(resharded(), Errc::corrupt, index_path(9));
  const auto exported = export_all();
  ASSERT_FALSE(exported.ok());
  EXPECT_NE(exported.error().message.find("'m'"), std::string::npos) << exported.error().message;
  auto ctx = context();
  const auto memory = TensorMemory::plan(ctx, store(), {.name = "@9", .rank = {}, .tensors = {}});
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, Errc::corrupt);
  (void)salvage_all();
}

// A sparse file is as large as it likes; a tensor is written in full, and there is no room for it.
TEST_F(HostileStore, ManyZerosNeedNoMemory) {
  craft({file("m", "safetensors", kTwoTo61, extent(0, 8)),
         tensor("t", "2305843009213693944", 0, "2305843009213693944", "[2305843009213693944]")});
  const auto loaded = load(all());  // the file system may have such files
  if (!loaded) {
    EXPECT_NE(loaded.error().message.find(path("out")), std::string::npos);
  }
  (void)salvage_all();
  auto ctx = context();
  (void)verify(ctx, store(), only("@9"));
}

TEST_F(HostileStore, SumsOfSizesDoNotWrap) {
  std::vector<std::string> lines;
  for (int i = 0; i < 5; i++) {
    lines.push_back(file(fmt::format("f{}", i), "opaque", kTwoTo62, fmt::format("[{}]", kTwoTo62)));
  }
  craft(lines);
  expect_refused(all(), Errc::corrupt, index_path(9));
  lines.clear();
  const std::string header = make_safetensors({});
  write_whole(path("empty.safetensors"), header);
  SaveOptions options;
  options.step = 2;
  FF_ASSERT_OK(save({path("empty.safetensors")}, options));
  const std::string index = read_whole(index_path(2));
  const size_t at = index.find("[[\"") + 1;
  const std::string first = index.substr(at, index.find(']', at) + 1 - at);
  for (int i = 0; i < 5; i++) {
    lines.push_back(file(fmt::format("f{}", i), "safetensors", kTwoTo62, first));
    lines.push_back(
        tensor(fmt::format("t{}", i), kTwoTo62, 0, kTwoTo62, fmt::format("[{}]", kTwoTo62)));
  }
  craft(lines);
  expect_refused(resharded(), Errc::corrupt, index_path(9));
}

TEST_F(HostileStore, TensorsFillTheirFile) {
  const std::string m = file("m", "safetensors", "100", extent(0, 60));
  const auto t = [&](uint64_t offset, uint64_t size) {
    const std::string text = std::to_string(size);
    return tensor("t" + std::to_string(offset), text, offset, text, extent(60 + offset, size));
  };
  craft({m, t(0, 10), t(10, 30)});
  FF_ASSERT_OK(load(all()));
  EXPECT_TRUE(read_whole(path("out/m")) == data_.substr(0, 100));
  fs::remove_all(path("out"));
  const std::vector<std::vector<std::string>> bad = {
      {m, t(0, 10)},             // too little
      {m, t(0, 10), t(10, 31)},  // beyond the end
      {m, t(0, 10), t(5, 30)},   // an overlap
      {m, t(0, 10), t(11, 29)},  // a hole
      {m, t(10, 30), t(0, 10)},  // out of order
      {file("m", "opaque", "5", extent(0, 5)), t(0, 10)},
      {t(0, 10)},
  };
  for (size_t i = 0; i < bad.size(); i++) {
    SCOPED_TRACE(i);
    craft(bad[i]);
    // A tensor of no file is of no file that a load restores.
    if (i + 1 < bad.size()) expect_refused(all(), Errc::corrupt, index_path(9));
    auto ctx = context();
    const auto report = verify(ctx, store(), only("@9"));
    FF_ASSERT_OK(report);
    EXPECT_EQ(report->damaged.size(), 1U);
  }
}

TEST_F(HostileStore, NamesAreUnique) {
  craft({file("f", "opaque", "5", extent(0, 5)), file("f", "directory", "0", "")});
  expect_refused(all(), Errc::corrupt, index_path(9));
}

class HostileTensors : public HostileStore {
 protected:
  void SetUp() override {
    HostileStore::SetUp();
    save_file("m.safetensors", make_safetensors({{"w", "U8", {4}, "abcd"}}), 2);
    const std::string index = read_whole(index_path(2));
    const size_t at = index.find("[[\"") + 1;
    header_ = index.substr(at, index.find(']', at) + 1 - at);
    size_ = fs::file_size(path("m.safetensors"));
  }
  std::string source(const std::string& name, unsigned rank = 0) const {
    return file(name, "safetensors", std::to_string(size_), header_, rank);
  }
  static std::string slice(uint64_t start, const std::string& global = "8") {
    return fmt::format(R"(,"global_shape":[{}],"slice_start":[{}])", global, start);
  }

  std::string header_;  // the extent of a header
  uint64_t size_ = 0;
};

// Pass two once wrote to the closed files of the first of two equal names.
TEST_F(HostileTensors, TwoFilesOfOneNameAreRefused) {
  craft({source("m"), tensor("a", "4", 0, "4", extent(0, 4)), source("m"),
         tensor("b", "4", 0, "4", extent(0, 4))});
  expect_refused(tensors(), Errc::corrupt, index_path(9));
}

TEST_F(HostileTensors, TwoTensorsOfOneNameInAFileAreRefused) {
  craft({source("m"), tensor("a", "4", 0, "4", extent(0, 4)),
         tensor("a", "4", 0, "4", extent(0, 4))});
  expect_refused(tensors(), Errc::corrupt, index_path(9));
}

// The dimension that the first slice was split along does not exist in the second.
TEST_F(HostileTensors, SlicesOfOneTensorAgree) {
  craft({source("m", 0), tensor("w", "4", 0, "4", extent(0, 4), slice(0)), source("m", 1),
         tensor("w", "", 0, "1", extent(0, 1))});
  expect_refused(resharded(), Errc::failed, "'w'");
  craft({source("m", 0), tensor("w", "4", 0, "4", extent(0, 4), slice(0)), source("m", 1),
         tensor("w", "4", 0, "4", extent(0, 4), slice(4, "9"))});
  expect_refused(resharded(), Errc::failed, "'w'");
}

TEST_F(HostileTensors, MissingSlicesAreAnError) {
  craft({source("m", 0), tensor("w", "4", 0, "4", extent(0, 4), slice(0))});
  expect_refused(resharded(), Errc::failed, "'w'");
  craft({source("m", 0), tensor("w", "4", 0, "4", extent(0, 4), slice(0)), source("m", 1),
         tensor("w", "4", 0, "4", extent(4, 4), slice(4))});
  FF_ASSERT_OK(load(resharded()));
  const auto got = tensors_of(read_whole(path("out/rank-00000-of-00001.safetensors")));
  EXPECT_TRUE(got.at("w").data == data_.substr(0, 8));
}

TEST_F(HostileTensors, AWholeTensorBeyondTheDiskIsRefused) {
  craft({source("m"), tensor("w", "1", 0, "1", extent(0, 1), slice(0, kTwoTo61))});
  expect_refused(resharded(), Errc::failed, "'w'");  // its other slices are missing
  craft({source("m"), tensor("w", kTwoTo61, 0, kTwoTo61, fmt::format("[{}]", kTwoTo61))});
  expect_refused(resharded(), Errc::disk_full, path("out"));
}

TEST_F(HostileStore, AChunkShorterThanItsIndexSaysIsDamage) {
  craft({file("f", "opaque", "6000", fmt::format(R"(["{}",0,6000,"00000000"])", chunk_))});
  expect_refused(all(), Errc::corrupt, "default@9");
}

// Values of two tensors with 2^61 zeros in common were once compared in 2^39 steps.
TEST_F(HostileStore, ADiffSkipsCommonZeros) {
  const std::string zeros = fmt::format("[{}],", kTwoTo61);
  const auto make = [&](uint64_t from, uint64_t step) {
    craft({file("m", "safetensors", "2305843009213693970", extent(0, 10)),
           tensor("t", "2305843009213693960", 0, "2305843009213693960", zeros + extent(from, 8))},
          step);
  };
  make(100, 10);
  make(200, 11);
  auto ctx = context();
  DiffOptions options;
  options.a = "@10";
  options.b = "@11";
  options.values = true;
  const auto report = diff(ctx, store(), options, [](const DiffEntry&) { return Result<void>(); });
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->tensors.changed, 1U);
}

// An index that a save writes is one that a load reads.
TEST_F(HostileStore, WhatAnIndexCannotHoldIsNotSaved) {
  const std::string json =
      R"({"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}})";
  std::string content(8, '\0');
  store_le(reinterpret_cast<std::byte*>(content.data()), uint64_t{json.size()});
  write_whole(path("a.safetensors"), content + json);
  SaveOptions options;
  options.step = 3;
  const auto saved = save({path("a.safetensors")}, options);
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find("a.safetensors"), std::string::npos);
  // Four ranks of 2^62 elements each, in a tensor without bytes.
  write_whole(path("b.safetensors"), make_safetensors({{"b", "U8", {0, uint64_t{1} << 62}, ""}}));
  options.rank = 0;
  options.world = 4;
  options.attempt = "a";
  options.splits = {{"*", 1}};
  const auto split = save({path("b.safetensors")}, options);
  ASSERT_FALSE(split.ok());
  EXPECT_NE(split.error().message.find("b.safetensors"), std::string::npos);
}

// The folders of a store may be links to elsewhere: readers write no lease and no mark there.
TEST_F(HostileStore, ReadersWriteNothingThroughLinks) {
  fs::remove_all(store() + "/tmp");
  fs::create_directory_symlink(path("outside"), store() + "/tmp");
  fs::rename(store() + "/runs/default/1", path("outside/1"));
  fs::create_directory_symlink(path("outside/1"), store() + "/runs/default/1");
  const auto before = tree_of(path("outside"));
  VerifyOptions options = only("@1");
  // The lease of a reader that pauses would be there now.
  std::map<std::string, std::string> during;
  HookDisk disk(disk_);
  disk.hook = [&](uint64_t) { during.merge(tree_of(path("outside"))); };
  Context watched{.disk = disk,
                  .clock = clock_,
                  .rng = rng_,
                  .stop = stop_,
                  .progress = progress_,
                  .threads = 1};
  EXPECT_FALSE(verify(watched, store(), options).ok());
  FF_ASSERT_OK(ff::checkpoint::load(watched, store(), load_to("@1", path("out"))));
  (void)salvage(watched, store(), {.name = "@1", .dest = path("rescued")});
  EXPECT_TRUE(during == before);
  EXPECT_TRUE(tree_of(path("outside")) == before);
}

}  // namespace
}  // namespace ff::checkpoint
