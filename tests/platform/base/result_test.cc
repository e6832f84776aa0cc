// Result, FF_TRY, the mapping of errno and of error codes to exit codes, and FF_CHECK.
#include "platform/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace ff {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Errc::usage, "{} is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  FF_TRY(const int once, half(value));
  FF_TRY(const int twice, half(once));
  return twice;
}

Result<void> both_even(int a, int b) {
  FF_TRY(half(a));
  FF_TRY(half(b));
  return {};
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().code, Errc::usage);
  EXPECT_TRUE(both_even(2, 4).ok());
  EXPECT_FALSE(both_even(2, 5).ok());
}

TEST(Result, CarriesMoveOnlyValues) {
  const auto make = [](bool good) -> Result<std::unique_ptr<int>> {
    if (!good) return fail(Errc::not_found, "nothing");
    return std::make_unique<int>(7);
  };
  Result<std::unique_ptr<int>> result = make(true);
  ASSERT_TRUE(result.ok());
  std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 7);
  EXPECT_FALSE(make(false).ok());
}

TEST(Result, WithinPutsWordsInFront) {
  Error error{Errc::disk_full, "no space", "Free some."};
  const Error outer = std::move(error).with_context("save step 3: ");
  EXPECT_EQ(outer.message, "save step 3: no space");
  EXPECT_EQ(outer.hint, "Free some.");
  EXPECT_EQ(outer.code, Errc::disk_full);
}

TEST(Result, ErrnoGivesCodeCauseAndHint) {
  EXPECT_EQ(errno_error(ENOENT, "/x").code, Errc::not_found);
  EXPECT_EQ(errno_error(ENOENT, "/x").message, "/x: No such file or directory");
  EXPECT_EQ(errno_error(EEXIST, "/x").code, Errc::exists);
  EXPECT_EQ(errno_error(EOPNOTSUPP, "/x").code, Errc::unsupported);
  EXPECT_EQ(errno_error(EIO, "/x").code, Errc::failed);
  for (const int err : {ENOSPC, EDQUOT}) {
    EXPECT_EQ(errno_error(err, "/x").code, Errc::disk_full);
    EXPECT_FALSE(errno_error(err, "/x").hint.empty());
  }
  for (const int err : {EACCES, EPERM, EROFS}) {
    EXPECT_EQ(errno_error(err, "/x").code, Errc::refused);
    EXPECT_FALSE(errno_error(err, "/x").hint.empty());
  }
}

TEST(Result, ExitCodesFollowTheTable) {
  EXPECT_EQ(exit_code(Errc::failed), 1);
  EXPECT_EQ(exit_code(Errc::not_found), 1);
  EXPECT_EQ(exit_code(Errc::disk_full), 1);
  EXPECT_EQ(exit_code(Errc::usage), 2);
  EXPECT_EQ(exit_code(Errc::corrupt), 3);
  EXPECT_EQ(exit_code(Errc::incomplete), 4);
  EXPECT_EQ(exit_code(Errc::refused), 5);
  EXPECT_EQ(exit_code(Errc::newer_format), 5);
  EXPECT_EQ(exit_code(Errc::deadline), 6);
  EXPECT_EQ(exit_code(Errc::interrupted), 130);
  EXPECT_EQ(errc_name(Errc::disk_full), "disk_full");
}

TEST(CheckDeathTest, StopsTheProcessAndNamesTheLine) {
  EXPECT_DEATH(FF_CHECK(1 + 1 == 3), "result_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
  EXPECT_DEATH((void)half(3).value(), "check failed");
  EXPECT_DEATH((void)half(4).error(), "check failed");
}

}  // namespace
}  // namespace ff
