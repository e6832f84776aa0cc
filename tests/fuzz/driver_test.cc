// The fuzz driver finds planted bugs of several kinds, leaves an input that brings the target down
// again, and does the same for the same seed.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace fs = std::filesystem;

class FuzzDriver : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "ff-fuzz-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Runs the driver in dir_; its exit status as the shell sees it, its output in output_.
  int run(const std::string& planted, const std::string& arguments) {
    const std::string command = "cd " + dir_.string() + " && PLANTED=" + planted + " " +
                                FF_PLANTED_CRASH + " " + arguments + " >out 2>&1";
    const int status = system(command.c_str());
    output_ = read(dir_ / "out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The one saved input; an empty path when there is none or several.
  fs::path saved() const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (!entry.path().filename().string().starts_with("crash-")) continue;
      if (!found.empty()) return {};
      found = entry.path();
    }
    return found;
  }

  fs::path dir_;
  std::string output_;
};

TEST_F(FuzzDriver, PassesATargetWithoutBugs) {
  EXPECT_EQ(run("none", "--runs 2000"), 0) << output_;
  EXPECT_NE(output_.find("seed 1, 2000 runs"), std::string::npos) << output_;
  EXPECT_TRUE(saved().empty());
}

TEST_F(FuzzDriver, FindsSavesAndReplaysPlantedBugs) {
  for (const std::string planted : {"number", "truncated", "bit"}) {
    SCOPED_TRACE(planted);
    EXPECT_NE(run(planted, "--runs 200000 --seed 7"), 0);
    EXPECT_NE(output_.find("of seed 7 brings the target down"), std::string::npos) << output_;
    const fs::path input = saved();
    ASSERT_FALSE(input.empty());
    EXPECT_NE(run(planted, input.string()), 0);
    EXPECT_EQ(run("none", input.string()), 0) << output_;
    fs::remove(input);
  }
}

TEST_F(FuzzDriver, SavesAnInputThatHangs) {
  EXPECT_NE(run("hang", "--runs 200000 --limit 1"), 0);
  EXPECT_TRUE(read(saved()).starts_with("mength")) << output_;
}

TEST_F(FuzzDriver, SameSeedSameInput) {
  ASSERT_NE(run("number", "--seed 3"), 0);
  const fs::path first = saved();
  ASSERT_FALSE(first.empty());
  const std::string content = read(first);
  fs::remove(first);
  ASSERT_NE(run("number", "--seed 3"), 0);
  EXPECT_EQ(saved(), first);
  EXPECT_EQ(read(first), content);
}

TEST_F(FuzzDriver, WritesItsSeeds) {
  EXPECT_EQ(run("none", "--write-seeds " + dir_.string()), 0) << output_;
  EXPECT_EQ(read(dir_ / "seed-0"), "length=12;data=hello, fuzz");
}

TEST_F(FuzzDriver, RefusesUnknownArguments) {
  EXPECT_EQ(run("none", "--rums 3"), 2);
  EXPECT_EQ(run("none", "--runs three"), 2);
  EXPECT_EQ(run("none", "--runs"), 2);
  EXPECT_EQ(run("none", "no-such-file"), 2);
}

}  // namespace
