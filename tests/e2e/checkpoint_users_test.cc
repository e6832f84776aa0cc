// ff checkpoint by several users on one store: with a group in common they share its chunks;
// without the rights of the group, a user is refused by name, and nothing is left half-written.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kGroup = 54321;

class CheckpointUsers : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root becomes other users";
    fs::permissions(dir_.path(), fs::perms::all);
    // The tree of the build may be closed to other users.
    fs::copy_file(FF_BINARY, dir_ / "ff");
    fs::create_directory(dir_ / "store");
    ASSERT_EQ(::chown((dir_ / "store").c_str(), 54001, kGroup), 0);
    ASSERT_EQ(::chmod((dir_ / "store").c_str(), 02775), 0);
    test::write_file(dir_ / "data", std::string(300'000, 'd'));
  }

  test::ProcessResult run(uint32_t uid, const std::string& umask, const std::string& words) {
    test::Child child(
        test::Launch{.argv = {"setpriv", "--reuid", std::to_string(uid), "--regid",
                              std::to_string(kGroup), "--clear-groups", "sh", "-c",
                              "umask " + umask + "; exec " + (dir_ / "ff") + " checkpoint " +
                                  words + " --store " + (dir_ / "store")}});
    test::ProcessResult result;
    result.exit = child.finish();
    result.out = child.out;
    result.err = child.err;
    return result;
  }

  test::TempDir dir_;
};

TEST_F(CheckpointUsers, OfOneGroupShareAStore) {
  const std::string data = dir_ / "data";
  const auto first = run(54001, "002", "save --run a --step 1 " + data);
  ASSERT_EQ(first.exit, 0) << first.err;
  const auto second = run(54002, "002", "save --run a --step 2 " + data);
  ASSERT_EQ(second.exit, 0) << second.err;
  EXPECT_NE(second.err.find("0 new chunks"), std::string::npos) << second.err;
  EXPECT_EQ(run(54001, "002", "verify a@2").exit, 0);
  const auto forgot = run(54002, "002", "forget a@1 --yes");
  EXPECT_EQ(forgot.exit, 0) << forgot.err;
  const auto pruned = run(54001, "002", "prune --grace 0s");
  EXPECT_EQ(pruned.exit, 0) << pruned.err;
  const auto loaded = run(54001, "002", "load a@2 " + (dir_ / "out"));
  EXPECT_EQ(loaded.exit, 0) << loaded.err;
  EXPECT_EQ(test::read_file(dir_ / "out/data"), test::read_file(data));
}

TEST_F(CheckpointUsers, AUserWithoutTheRightsIsRefusedAndLeavesNothing) {
  const std::string data = dir_ / "data";
  ASSERT_EQ(run(54001, "022", "save --run a --step 1 " + data).exit, 0);
  const auto refused = run(54002, "022", "save --run a --step 2 " + data);
  EXPECT_EQ(refused.exit, 5);
  EXPECT_NE(refused.err.find("Permission denied"), std::string::npos) << refused.err;
  EXPECT_EQ(run(54002, "022", "forget a@1 --yes").exit, 5);
  EXPECT_EQ(run(54002, "022", "verify a@1").exit, 0);
  const auto loaded = run(54002, "022", "load a@1 " + (dir_ / "out"));
  EXPECT_EQ(loaded.exit, 0) << loaded.err;
}

}  // namespace
}  // namespace ff::cmd
