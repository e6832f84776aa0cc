// ff bench files on real directories: the phases it reports, what it refuses, and that it leaves
// nothing behind, also after Ctrl-C.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

test::ProcessResult bench_files(Words words) {
  words.insert(words.begin(), {"bench", "files"});
  return test::run_ff(std::move(words));
}

TEST(BenchFiles, MeasuresAllPhasesOfEachDirectoryAndLeavesNothing) {
  const test::TempDir one, two;
  for (const bool own : {false, true}) {
    Words words = {one.path(), two.path(), "--processes", "3", "--files", "20",
                   "--size",   "5000",     "--rounds",    "2", "--json"};
    if (own) words.push_back("--own-directories");
    const auto ran = bench_files(words);
    ASSERT_EQ(ran.exit, 0) << ran.err;
    const auto rows = nlohmann::json::parse(ran.out)["data"]["rows"];
    ASSERT_EQ(rows.size(), 12u);
    const char* const phases[] = {"create", "stat", "rename", "remove", "write", "read"};
    for (size_t i = 0; i < rows.size(); i++) {
      EXPECT_EQ(rows[i]["phase"], phases[i / 2]);
      EXPECT_EQ(rows[i]["dir"], (i % 2 == 0 ? one : two).path().string());
      EXPECT_EQ(rows[i]["operations"], 60);
      EXPECT_GT(rows[i]["per_second"], 0);
    }
    EXPECT_TRUE(std::filesystem::is_empty(one.path()));
    EXPECT_TRUE(std::filesystem::is_empty(two.path()));
  }
}

TEST(BenchFiles, MistakesAreNamed) {
  const test::TempDir dir;
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{}, 2, "DIR is missing"},
      {{dir.path(), "--processes", "0"}, 2, "--processes 0: 1 to 256"},
      {{dir.path(), "--files", "0"}, 2, "--files 0: 1 to 16000000"},
      {{dir.path(), "--size", "1GiB"}, 2, "--size 1.00GiB: at most 64.0MiB"},
      {{dir.path(), "--rounds", "0"}, 2, "--rounds 0"},
      {{dir / "none"}, 1, dir / "none"},
  };
  for (const Case& one : cases) {
    const auto ran = bench_files(one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.said;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << ran.err;
  }
}

TEST(BenchFiles, CtrlCEndsItAndRemovesItsFiles) {
  const test::TempDir dir;
  test::Child ran(test::Launch{
      .argv = {FF_BINARY, "bench", "files", dir.path(), "--processes", "2", "--files", "1000000"}});
  ASSERT_TRUE(test::eventually([&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
      if (entry.is_regular_file()) return true;
    }
    return false;
  }));
  ran.signal(SIGINT);
  EXPECT_EQ(ran.finish(), 130) << ran.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace ff::cmd
