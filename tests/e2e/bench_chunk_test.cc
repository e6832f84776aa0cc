// ff bench chunk as it is typed: what it refuses, what it prints, and that it leaves nothing
// behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "platform/io/temp_dir.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

test::ProcessResult bench_chunk(Words words) {
  words.insert(words.begin(), {"bench", "chunk"});
  return test::run_ff(std::move(words));
}

TEST(BenchChunk, MistakesAreNamed) {
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{"--size", "1MiB"}, 2, "--size 1.00MiB: at least 64MiB"},
      {{"--depth", "0"}, 2, "--depth 0: 1 to 1024"},
      {{"--small-depth", "5000"}, 2, "--small-depth 5000"},
      {{"--rounds", "0"}, 2, "--rounds 0"},
      {{"--chunk", "5"}, 2, "--chunk"},
      {{"/nonexistent"}, 1, "/nonexistent"},
  };
  for (const Case& one : cases) {
    const auto ran = bench_chunk(one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[0] << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << one.words[0];
  }
}

TEST(BenchChunk, MeasuresAndCleansUp) {
  const io::TempDir dir;
  const auto ran =
      bench_chunk({dir.path(), "--size", "64MiB", "--rounds", "1", "--chunks", "2000", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
  for (const char* const part : {R"("test":"write")", R"("test":"read")", R"("test":"random read")",
                                 R"("chunks":2000)", R"("ratio":)"}) {
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << " in " << ran.out;
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace ff::cmd
