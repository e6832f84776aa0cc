// Save and load: round trips byte for byte, only new data is written, and inputs that cannot be
// saved or loaded are refused without partial results.
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "platform/base/bytes.h"
#include "platform/simd/crc32c.h"
#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/options.h"

namespace ff::checkpoint {
namespace {

class SaveTest : public CheckpointTest {
 protected:
  // Saves, loads, and compares trees.
  void round_trip(const std::vector<std::string>& names, SaveOptions options = {}) {
    std::vector<std::string> paths;
    for (const auto& name : names) paths.push_back(path(name));
    options.step = 1;
    FF_ASSERT_OK(save(paths, options));
    FF_ASSERT_OK(load(load_to("default@1", path("out"))));
    std::map<std::string, std::string> expected;
    for (const auto& name : names) {
      if (fs::is_directory(path(name))) {
        expected[name + "/"] = "";
        for (auto& [below, content] : tree_of(path(name))) expected[name + "/" + below] = content;
      } else {
        expected[name] = read_whole(path(name));
      }
    }
    EXPECT_EQ(tree_of(path("out")), expected);
  }
  void expect_error(const Result<SaveReport>& result, Errc code, std::string_view words) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  }
};

TEST_F(SaveTest, SafetensorsRoundTrip) {
  write_whole(path("m.safetensors"),
              make_safetensors({{"small", "F32", {3}, noise(1, 12)},
                                {"empty", "F32", {0, 4}, ""},
                                {"large", "U8", {9'000'001}, noise(2, 9'000'001)},
                                {"tail", "BF16", {5, 7}, noise(3, 70)},
                                {"zeros", "U8", {5'000'000}, std::string(5'000'000, '\0')}},
                               SafetensorsMetadata{{"format", "pt"}}));
  round_trip({"m.safetensors"});
}

TEST_F(SaveTest, TreesKeepKindsModesAndTimes) {
  write_whole(path("d/sub/file"), noise(1, 10'000));
  write_whole(path("d/empty"), "");
  write_whole(path("d/name with ' \" \n and \xC3\xA9"), "x");
  fs::create_directories(path("d/hollow"));
  fs::create_symlink("sub/file", path("d/link"));
  fs::create_symlink("/nowhere", path("d/dangling"));
  fs::permissions(path("d/sub/file"), fs::perms(0751));
  fs::permissions(path("d/sub"), fs::perms(0555));
  FF_ASSERT_OK(disk_.set_mtime(path("d/sub/file"), 1'234'567'890'123'456'789));
  FF_ASSERT_OK(disk_.set_mtime(path("d/hollow"), -1'000'000'000));
  round_trip({"d"});
  const auto info = disk_.info(path("out/d/sub/file")).value();
  EXPECT_EQ(info.mode, 0751U);
  EXPECT_EQ(info.mtime_ns, 1'234'567'890'123'456'789);
  EXPECT_EQ(disk_.info(path("out/d/sub")).value().mode, 0555U);
  fs::permissions(path("d/sub"), fs::perms(0755));
  fs::permissions(path("out/d/sub"), fs::perms(0755));
}

TEST_F(SaveTest, EveryThreadCountAndSize) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    threads_ = threads;
    for (const size_t size :
         {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{kChunkBytes} - 1,
          size_t{kChunkBytes}, size_t{kChunkBytes} + 1, 3 * size_t{kChunkBytes} + 77}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << size << " bytes");
      fs::remove_all(store());
      fs::remove_all(path("out"));
      write_whole(path("f"), noise(size, size));
      round_trip({"f"});
    }
  }
}

TEST_F(SaveTest, SparseFilesStaySparse) {
  constexpr uint64_t kHuge = uint64_t{64} << 30;
  {
    auto file =
        disk_.open(path("sparse"), {.access = io::AccessMode::write, .create = true}).value();
    FF_ASSERT_OK(file->truncate(kHuge));
    FF_ASSERT_OK(file->write_at(as_bytes(noise(1, 5000)), uint64_t{33} << 30));
    FF_ASSERT_OK(file->write_at(as_bytes(noise(2, 100)), kHuge - 100));
  }
  const auto report = save({path("sparse")});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->bytes, kHuge);
  EXPECT_LT(report->bytes_written, 3 * kMiB * 4);
  FF_ASSERT_OK(load(load_to("default", path("out"))));
  const auto info = disk_.info(path("out/sparse")).value();
  EXPECT_EQ(info.size, kHuge);
  EXPECT_LT(info.allocated, 16 * kMiB);
  auto file = disk_.open(path("out/sparse"), {}).value();
  std::string got(5000, '\0');
  FF_ASSERT_OK(
      file->read_at({reinterpret_cast<std::byte*>(got.data()), got.size()}, uint64_t{33} << 30));
  EXPECT_EQ(got, noise(1, 5000));
}

TEST_F(SaveTest, StreamsOfEveryLength) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{kChunkBytes}, size_t{kChunkBytes} + 5}) {
    SCOPED_TRACE(size);
    const std::string content = noise(3, size);
    size_t at = 0;
    int pauses = 3;
    SaveInputs inputs;
    inputs.stream = StreamInput{
        "in.tar", [&](ByteSpan into) -> Result<std::optional<size_t>> {
          if (at > 0 && pauses-- > 0) return std::optional<size_t>();  // nothing yet
          const size_t part = std::min({into.size(), content.size() - at, size_t{70'001}});
          std::memcpy(into.data(), content.data() + at, part);
          at += part;
          return std::optional(part);
        }};
    auto ctx = context();
    const auto report = ff::checkpoint::save(ctx, store(), inputs, {});
    FF_ASSERT_OK(report);
    EXPECT_EQ(report->bytes, size);
    fs::remove_all(path("out"));
    FF_ASSERT_OK(load(load_to(report->name.text(), path("out"))));
    EXPECT_EQ(read_whole(path("out/in.tar")), content);
  }
}

TEST_F(SaveTest, UnchangedTensorsAreNotWrittenAgain) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 10; i++) {
    tensors.push_back({"t" + std::to_string(i), "U8", {5'000'000}, noise(i, 5'000'000)});
  }
  save_file("m.safetensors", make_safetensors(tensors), 1);
  tensors[4].data = noise(99, 5'000'000);
  write_whole(path("m.safetensors"), make_safetensors(tensors));
  const auto second = save({path("m.safetensors")});
  FF_ASSERT_OK(second);
  EXPECT_EQ(second->name.step, 2U);
  EXPECT_EQ(second->chunks_new, 2U);
  EXPECT_LE(second->bytes_written, 5'000'000 + 2 * 8192);
  const auto third = save({path("m.safetensors")});
  FF_ASSERT_OK(third);
  EXPECT_EQ(third->chunks_new, 0U);
}

TEST_F(SaveTest, SmallTensorsShareChunks) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 20'000; i++) {
    tensors.push_back({"t" + std::to_string(i), "U8", {100}, noise(i, 100)});
  }
  write_whole(path("m.safetensors"), make_safetensors(tensors));
  round_trip({"m.safetensors"});
  EXPECT_LT(chunk_files().size(), 8U);
}

TEST_F(SaveTest, CompressionIsUsedWhereItPays) {
  std::string text;
  while (text.size() < 6'000'000) text += "all work and no play " + std::to_string(text.size());
  write_whole(path("text"), text);
  write_whole(path("noise"), noise(1, 6'000'000));
  SaveOptions options;
  options.compress = true;
  round_trip({"text", "noise"}, options);
  uint64_t stored = 0;
  for (const auto& chunk : chunk_files()) stored += fs::file_size(chunk);
  EXPECT_LT(stored, 6'000'000U + 2'500'000);
}

TEST_F(SaveTest, TimesBefore1970AreRestored) {
  constexpr int64_t kBefore1970 = -86'400 * kSecond - 5;
  write_whole(path("in/sub/f"), "1");
  fs::create_symlink("f", path("in/sub/link"));
  for (const char* name : {"in/sub/f", "in/sub/link", "in/sub"}) {
    FF_ASSERT_OK(disk_.set_mtime(path(name), kBefore1970));
  }
  FF_ASSERT_OK(save({path("in")}));
  FF_ASSERT_OK(load(load_to("default", path("out"))));
  for (const char* name : {"out/in/sub/f", "out/in/sub/link", "out/in/sub"}) {
    EXPECT_EQ(disk_.info(path(name))->mtime_ns, kBefore1970) << name;
  }
}

TEST_F(SaveTest, SameStepAgain) {
  save_file("f", noise(1, 100'000), 3);
  SaveOptions options;
  options.step = 3;
  const auto same = save({path("f")}, options);
  FF_ASSERT_OK(same);
  EXPECT_EQ(same->outcome, SaveOutcome::already_there);
  write_whole(path("f"), noise(2, 100'000));
  const size_t chunks = chunk_files().size();
  expect_error(save({path("f")}, options), Errc::refused, "other content");
  EXPECT_EQ(chunk_files().size(), chunks);
  options.replace = true;
  FF_ASSERT_OK(save({path("f")}, options));
  FF_ASSERT_OK(load(load_to("default@3", path("out"))));
  EXPECT_EQ(read_whole(path("out/f")), noise(2, 100'000));
}

TEST_F(SaveTest, SameChunksUnderAnotherNameAreAnotherContent) {
  save_file("f", noise(1, 100'000), 3);
  fs::rename(path("f"), path("g"));
  SaveOptions options;
  options.step = 3;
  expect_error(save({path("g")}, options), Errc::refused, "other content");
}

TEST_F(SaveTest, ADamagedChunkIsWrittenAgain) {
  save_file("f", noise(1, 100'000), 1);
  flip_bit(chunk_files().at(0), 100);
  const auto second = save({path("f")});
  FF_ASSERT_OK(second);
  EXPECT_EQ(second->chunks_new, 1U);
  FF_ASSERT_OK(load(load_to("default@1", path("out"))));
}

TEST_F(SaveTest, BadInputs) {
  expect_error(save({path("missing")}), Errc::not_found, "missing");
  expect_error(save({}), Errc::usage, "nothing to save");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error(save({path("pipe")}), Errc::failed, "neither a file");
  write_whole(path("a/f"), "1");
  write_whole(path("b/f"), "2");
  expect_error(save({path("a/f"), path("b/f")}), Errc::usage, "named 'f'");
  write_whole(path("not.safetensors"), "this is text, not tensors");
  expect_error(save({path("not.safetensors")}), Errc::failed, "not a safetensors file");
  SaveOptions opaque;
  opaque.opaque = {"*.safetensors"};
  FF_ASSERT_OK(save({path("not.safetensors")}, opaque));
  SaveOptions run;
  run.run = "../up";
  expect_error(save({path("a")}, run), Errc::usage, "run name");
  write_whole(path("bad\xff"), "1");
  expect_error(save({path("bad\xff")}), Errc::failed, "not UTF-8");
}

TEST_F(SaveTest, ForeignDirectoriesAreLeftAlone) {
  write_whole(path("store/somebody.txt"), "mine");
  write_whole(path("f"), "1");
  expect_error(save({path("f")}), Errc::refused, "not a checkpoint store");
  EXPECT_EQ(tree_of(store()), (std::map<std::string, std::string>{{"somebody.txt", "mine"}}));
}

TEST_F(SaveTest, NewerFormatsAreRefused) {
  save_file("f", "1", 1);
  const std::string text = read_whole(store() + "/ff-store.json");
  std::string newer = text.substr(0, text.find(",\"crc\""));
  newer.replace(newer.find(":1,"), 3, ":2,");
  const uint32_t crc = simd::crc32c(as_bytes(newer));
  write_whole(store() + "/ff-store.json", newer + fmt::format(",\"crc\":\"{:08x}\"}}\n", crc));
  expect_error(save({path("f")}), Errc::newer_format, "newer");
  const auto loaded = load(load_to("default@1", path("out")));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::newer_format);
}

TEST_F(SaveTest, PrivateStoresRefuseOtherUsers) {
  save_file("f", "1", 1);
  SaveOptions other;
  other.identity.uid = ::geteuid() + 1;
  expect_error(save({path("f")}, other), Errc::refused, "private store");
  fs::remove_all(store());
  SaveOptions shared;
  shared.digest = simd::DigestKind::sha256;
  FF_ASSERT_OK(save({path("f")}, shared));
  FF_ASSERT_OK(save({path("f")}, other));
  round_trip({"f"});
}

TEST_F(SaveTest, NonEmptyDestinationsAreRefused) {
  save_file("f", "1", 1);
  write_whole(path("full/x"), "x");
  auto refused = load(load_to("default", path("full")));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(tree_of(path("full")), (std::map<std::string, std::string>{{"x", "x"}}));
  fs::create_directories(path("empty"));
  FF_ASSERT_OK(load(load_to("default", path("empty"))));
  EXPECT_EQ(tree_of(path("empty")), (std::map<std::string, std::string>{{"f", "1"}}));
}

// Every bit of every kind of file in a store, sampled by seed: verify names it, load gives exit 3
// or the right bytes, and never anything partial.
TEST_F(SaveTest, OneFlippedBitAnywhere) {
  const std::string content =
      make_safetensors({{"w", "U8", {3000}, noise(1, 3000)}, {"b", "F32", {4}, noise(2, 16)}});
  save_file("m.safetensors", content, 1);
  {
    auto ctx = context();
    FF_ASSERT_OK(verify(ctx, store(), only("default@1")));
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(store())) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 6U);  // store, index, verified, latest, two chunks
  SeededRng seeded(4);
  for (const auto& file : files) {
    const uint64_t bits = fs::file_size(file) * 8;
    for (int i = 0; i < 60; i++) {
      const uint64_t bit = seeded.below(bits);
      SCOPED_TRACE(testing::Message() << file << " bit " << bit);
      const std::string whole = read_whole(file);
      flip_bit(file, bit);
      auto ctx = context();
      const auto report = verify(ctx, store(), everything());
      EXPECT_TRUE(!report.ok() || !report->damage.empty());
      if (!report) {
        EXPECT_EQ(exit_code(report.error().code), 3) << report.error().message;
      }
      const auto loaded = load(load_to("default@1", path("out")));
      if (loaded) {
        EXPECT_EQ(read_whole(path("out/m.safetensors")), content);
      } else {
        EXPECT_EQ(exit_code(loaded.error().code), 3) << loaded.error().message;
        EXPECT_FALSE(fs::exists(path("out")));
      }
      fs::remove_all(path("out"));
      write_whole(file, whole);  // a damaged chunk has been moved aside, a mark removed
    }
  }
}

TEST_F(SaveTest, InputsThatChangeAreDetected) {
  write_whole(path("f"), noise(1, 100'000));
  SaveInputs inputs{.paths = {path("f")}, .stream = StreamInput{"s", {}}};
  inputs.stream->read = [&](ByteSpan) -> Result<std::optional<size_t>> {
    write_whole(path("f"), noise(2, 100'001));  // after f was read, before the commit
    return std::optional<size_t>(0);
  };
  threads_ = 1;
  auto ctx = context();
  expect_error(ff::checkpoint::save(ctx, store(), inputs, {}), Errc::failed, "changed while");
  const auto report = verify(ctx, store(), everything());
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->intact.empty() && report->damage.empty());
}

TEST_F(SaveTest, StopEndsASaveAndLeavesNothing) {
  write_whole(path("f"), noise(1, 50'000'000));
  stop_.request();
  expect_error(save({path("f")}), Errc::interrupted, "interrupted");
  EXPECT_TRUE(fs::is_empty(store() + "/tmp"));
}

TEST_F(SaveTest, LatestIsTheHighestStep) {
  save_file("f", "1", 10);
  save_file("f", "2", 5);  // an older step, later
  const auto opened = Store::open(disk_, store()).value();
  EXPECT_EQ(latest_step(disk_, opened, "default")->step, 10U);
  write_whole(store() + "/runs/default/latest", "99 nonsense\n");
  EXPECT_EQ(latest_step(disk_, opened, "default")->step, 10U);
  write_whole(path("f"), "3");
  EXPECT_EQ(save({path("f")})->name.step, 11U);
}

}  // namespace
}  // namespace ff::checkpoint
