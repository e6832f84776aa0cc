// When the loop of a mount follows a program to its CPU, and when it is free to run anywhere.
#include "storage/mount/follow_cpu.h"

#include <gtest/gtest.h>

#include "storage/mount/fuse_request.h"

namespace ff::mount {
namespace {

void requests(FollowCpu& follow, size_t cpu, int count, bool alone = true) {
  for (int i = 0; i < count; i++) follow.on_request(cpu, alone);
}

TEST(FollowCpuTest, ItFollowsASingleProgram) {
  FollowCpu follow;
  requests(follow, 1, 15);
  EXPECT_FALSE(follow.pinned());
  EXPECT_TRUE(follow.on_request(1, true));
  EXPECT_EQ(follow.pinned(), 1u);
  EXPECT_FALSE(follow.on_request(1, true));
  // The scheduler moves the program.
  requests(follow, 0, 16);
  EXPECT_EQ(follow.pinned(), 0u);
}

TEST(FollowCpuTest, RareRequestsOfOthersDoNotFreeIt) {
  FollowCpu follow;
  for (int i = 0; i < 100; i++) {
    requests(follow, 1, 16);
    requests(follow, 0, 2);
    EXPECT_EQ(follow.pinned(), 1u);
  }
}

TEST(FollowCpuTest, ProgramsAtTheSameTimeFreeIt) {
  FollowCpu follow;
  requests(follow, 1, 16);
  requests(follow, 1, 3, false);
  EXPECT_EQ(follow.pinned(), 1u);
  EXPECT_TRUE(follow.on_request(1, false));
  EXPECT_FALSE(follow.pinned());
  for (int i = 0; i < 100; i++) requests(follow, static_cast<size_t>(i % 2), 8);
  EXPECT_FALSE(follow.pinned());
}

TEST(FollowCpuTest, ItAsksRarelyWhereAThreadRuns) {
  FollowCpu follow;
  const auto asked = [&](int count, uint32_t threads) {
    int asks = 0;
    for (int i = 0; i < count; i++) {
      asks += follow.must_ask(static_cast<uint32_t>(i) % threads) ? 1 : 0;
    }
    return asks;
  };
  EXPECT_TRUE(follow.must_ask(7));
  EXPECT_LE(asked(320, 1), 12);
  EXPECT_GE(asked(320, 1), 9);
  EXPECT_LE(asked(320, 40), 40);
  // What runs nobody knows where is not followed.
  for (int i = 0; i < 100; i++) EXPECT_FALSE(follow.on_request(std::nullopt, true));
}

// It comes beside the next request of the same program.
TEST(FollowCpuTest, NoProgramWaitsForARelease) {
  fuse_in_header header = {};
  for (const uint32_t opcode : {FUSE_RELEASE, FUSE_RELEASEDIR}) {
    header.opcode = opcode;
    EXPECT_FALSE(is_awaited(header));
  }
  for (const uint32_t opcode : {FUSE_GETATTR, FUSE_FLUSH, FUSE_WRITE}) {
    header.opcode = opcode;
    EXPECT_TRUE(is_awaited(header));
  }
}

}  // namespace
}  // namespace ff::mount
