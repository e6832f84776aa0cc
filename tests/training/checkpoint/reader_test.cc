// reader.py, written from FORMAT.md alone, reads stores of ff: it finds them intact, restores the
// same bytes, and detects damage. So FORMAT.md is complete.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/sealed_line.h"

namespace ff::checkpoint {
namespace {

class Reader : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    if (std::system("python3 -c pass 2>/dev/null") != 0) {
      GTEST_SKIP() << "python3 is missing: './bootstrap' installs it";
    }
  }

  // The exit status of reader.py; its output in output_.
  int run(const std::string& arguments) {
    const std::string command = "PYTHONDONTWRITEBYTECODE=1 python3 " FF_SOURCE_DIR
                                "/tests/training/checkpoint/reader.py " +
                                arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    output_.clear();
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) output_.append(buffer, got);
    return WEXITSTATUS(pclose(pipe));
  }

  // Tensors small and larger than a chunk, files of all kinds, holes, names in need of escapes.
  void make_inputs() {
    write_whole(path("in/model.safetensors"),
                make_safetensors({{"w", "U8", {4'300'000}, noise(1, 4'300'000)},
                                  {"a \"quoted\"\n\xc3\xa9<name>", "F32", {3}, noise(2, 12)},
                                  {"zeros", "F32", {1000}, std::string(4000, '\0')},
                                  {"none", "I64", {0, 3}, ""}},
                                 SafetensorsMetadata{{"format", "pt"}}));
    for (const size_t size : {1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 100'000}) {
      write_whole(path("in/files/" + std::to_string(size)), noise(size, size));
    }
    write_whole(path("in/empty"), "");
    write_whole(path("in/sparse"), "begins");
    fs::resize_file(path("in/sparse"), 9 << 20);
    fs::create_directory(path("in/folder"));
    fs::create_symlink("../in/empty", path("in/link"));
    fs::permissions(path("in/empty"), fs::perms::owner_read);
  }

  void expect_same_tree(const std::string& got, const std::string& wanted) {
    EXPECT_TRUE(tree_of(got) == tree_of(wanted));
    for (const auto& entry : fs::recursive_directory_iterator(wanted)) {
      const auto other = fs::path(got) / entry.path().lexically_relative(wanted);
      EXPECT_EQ(fs::symlink_status(other).permissions(), entry.symlink_status().permissions())
          << other;
      if (entry.is_symlink()) continue;
      EXPECT_EQ(fs::last_write_time(other), entry.last_write_time()) << other;
    }
  }

  std::string output_;
};

// The example of the document is a real index: all its checksums match.
TEST_F(Reader, TheExampleIsGenuine) {
  std::ifstream document(FF_SOURCE_DIR "/core/training/checkpoint/format/FORMAT.md");
  std::string index;
  size_t sealed = 0;
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with("{\"")) continue;
    EXPECT_TRUE(line_is_sealed(line)) << line;
    sealed++;
    if (line_type(line) != LineType::other) index += line + "\n";
  }
  EXPECT_EQ(sealed, 7U);
  write_whole(path("index.jsonl"), index);
  auto reader = IndexReader::open(disk_, path("index.jsonl"));
  FF_ASSERT_OK(reader);
  std::optional<Record> last;
  do {
    auto record = reader->next();
    FF_ASSERT_OK(record);
    last = *record;
  } while (last);
  EXPECT_EQ(reader->end()->tensors, 2U);
}

TEST_F(Reader, ReadsWhatFfWrites) {
  make_inputs();
  for (const auto kind : {simd::DigestKind::xxh128, simd::DigestKind::sha256}) {
    SCOPED_TRACE(simd::digest_kind_name(kind));
    fs::remove_all(store());
    fs::remove_all(path("out"));
    SaveOptions options;
    options.digest = kind;
    options.step = 1;
    FF_ASSERT_OK(save({path("in")}, options));
    options.step = 20;
    FF_ASSERT_OK(save({path("in/files")}, options));
    EXPECT_EQ(run(store()), 0) << output_;
    EXPECT_NE(output_.find("default@1: "), std::string::npos) << output_;
    EXPECT_NE(output_.find("default@20: "), std::string::npos) << output_;
    EXPECT_NE(output_.find("2 checkpoints"), std::string::npos) << output_;
    EXPECT_EQ(run(store() + " default@1 " + path("out")), 0) << output_;
    expect_same_tree(path("out/in"), path("in"));
  }
}

TEST_F(Reader, ReadsWhatRanksSavedTogether) {
  for (uint32_t rank = 0; rank < 2; rank++) {
    SaveOptions options;
    options.rank = rank;
    options.world = 2;
    options.attempt = "try/1 \xc3\xa9";
    options.splits = {{"w", 0}};
    save_file("m.safetensors", make_safetensors({{"w", "U8", {100}, noise(rank, 100)}}), 1,
              options);
  }
  EXPECT_EQ(run(store()), 0) << output_;
  EXPECT_EQ(run(store() + " default@1 " + path("out")), 0) << output_;
  EXPECT_EQ(read_whole(path("out/rank-00000/m.safetensors")),
            make_safetensors({{"w", "U8", {100}, noise(0, 100)}}));
  EXPECT_EQ(read_whole(path("out/rank-00001/m.safetensors")),
            make_safetensors({{"w", "U8", {100}, noise(1, 100)}}));
}

TEST_F(Reader, CountsCompressedChunks) {
  write_whole(path("in/text"), std::string(100'000, 'x'));
  write_whole(path("in/noise"), noise(1, 100'000));
  SaveOptions options;
  options.step = 1;
  options.compress = true;
  FF_ASSERT_OK(save({path("in")}, options));
  EXPECT_EQ(run(store()), 0) << output_;
  EXPECT_NE(output_.find("2 chunks good, of them 1 compressed"), std::string::npos) << output_;
  EXPECT_EQ(run(store() + " default@1 " + path("out")), 4) << output_;
  EXPECT_EQ(tree_of(path("out/in")).size(), 1U);
  EXPECT_TRUE(read_whole(path("out/in/noise")) == noise(1, 100'000));
}

TEST_F(Reader, DetectsDamage) {
  write_whole(path("in/m.safetensors"), make_safetensors({{"w", "U8", {5000}, noise(1, 5000)}}));
  SaveOptions options;
  options.step = 1;
  FF_ASSERT_OK(save({path("in")}, options));
  SeededRng rng(11);
  std::vector<fs::path> files = chunk_files();
  files.emplace_back(index_path());
  files.emplace_back(store() + "/ff-store.json");
  for (const auto& file : files) {
    const uint64_t bit = rng.below(fs::file_size(file) * 8);
    SCOPED_TRACE(fmt::format("bit {} of {}", bit, file.string()));
    flip_bit(file, bit);
    EXPECT_EQ(run(store()), 3) << output_;
    flip_bit(file, bit);
  }
  fs::rename(files[0], path("elsewhere"));
  EXPECT_EQ(run(store()), 3) << output_;
  EXPECT_NE(output_.find("missing"), std::string::npos);
  fs::rename(path("elsewhere"), files[0]);
  EXPECT_EQ(run(store()), 0) << output_;
  EXPECT_EQ(run(store() + " default@2 " + path("out")), 1);
  EXPECT_EQ(run(path("nowhere")), 1);
}

}  // namespace
}  // namespace ff::checkpoint
