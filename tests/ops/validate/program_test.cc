// Running another program for a check: output, exit, and the deadline.
#include "ops/validate/program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace ff::validate {
namespace {

class ProgramTest : public testing::Test {
 protected:
  Result<ProgramOutput> shell(const std::string& line, int64_t within_ns = 20 * kSecond,
                              size_t most = 1 << 20) {
    return run_program("sh", {"-c", line}, clock_, within_ns, most);
  }
  SystemClock clock_;
};

TEST_F(ProgramTest, WhatItSaysAndHowItEnds) {
  const auto said = shell("echo one; echo two >&2; cat; printf three");
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->output, "one\nthree") << "errors go to nobody, and nobody types";
  EXPECT_TRUE(said->ended_well());
  const auto failed = shell("echo no; exit 3");
  EXPECT_FALSE(failed->ended_well());
  EXPECT_EQ(WEXITSTATUS(failed->status), 3);
  const auto killed = shell("kill -9 $$");
  EXPECT_FALSE(killed->ended_well());
  EXPECT_FALSE(killed->hung);
  EXPECT_EQ(WTERMSIG(killed->status), SIGKILL);
}

TEST_F(ProgramTest, OneThatHangsIsEndedAndWhatItSaidIsKept) {
  const auto said = shell("echo before; exec sleep 1000", kSecond / 2);
  ASSERT_TRUE(said.ok());
  EXPECT_TRUE(said->hung);
  EXPECT_FALSE(said->ended_well());
  EXPECT_EQ(said->output, "before\n");
  // Also if it has closed its output before.
  EXPECT_TRUE(shell("exec >&-; exec sleep 1000", kSecond / 2)->hung);
}

TEST_F(ProgramTest, MuchIsCut) {
  const auto said = shell("head -c 100000 /dev/zero", 20 * kSecond, 1000);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->output.size(), 1000u);
  EXPECT_TRUE(said->ended_well());
}

TEST_F(ProgramTest, OneThatIsNotThereIsAnError) {
  const auto said = run_program("ff-no-such-program", {}, clock_, kSecond, 100);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.error().code, Errc::not_found);
}

}  // namespace
}  // namespace ff::validate
