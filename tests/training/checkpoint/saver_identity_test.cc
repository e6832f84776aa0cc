// The saver's identity from the machine, and the attempt of a job from the environment.
#include "training/checkpoint/save/saver_identity.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "platform/io/system_disk.h"

namespace ff::checkpoint {
namespace {

TEST(IdentityTest, TheUserByNumberAndName) {
  io::SystemDisk disk;
  const SaverIdentity self = saver_identity(disk, "host", "1.2");
  EXPECT_EQ(self.uid, ::geteuid());
  EXPECT_EQ(self.host, "host");
  EXPECT_EQ(self.ff_version, "1.2");
  if (self.uid == 0) {
    EXPECT_EQ(self.user, "root");
  }
}

TEST(IdentityTest, TheAttemptFromTheEnvironment) {
  const auto set = [](const char* name, const char* value) {
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  const auto attempt = [&](const char* own, const char* run, const char* restarts) {
    set("FF_ATTEMPT", own);
    set("TORCHELASTIC_RUN_ID", run);
    set("TORCHELASTIC_RESTART_COUNT", restarts);
    return attempt_from_environment();
  };
  EXPECT_EQ(attempt(nullptr, nullptr, nullptr), "");
  EXPECT_EQ(attempt(nullptr, nullptr, "3"), "");
  EXPECT_EQ(attempt(nullptr, "job", nullptr), "job.0");
  EXPECT_EQ(attempt(nullptr, "job", "3"), "job.3");
  EXPECT_EQ(attempt("", "job", "3"), "job.3");
  EXPECT_EQ(attempt("mine", "job", "3"), "mine");
  // Without --rdzv-id all jobs of torchrun have this one.
  EXPECT_EQ(attempt(nullptr, "none", "0"), "");
  EXPECT_EQ(attempt("mine", "none", "0"), "mine");
  set("FF_TASK", "12");
  set("FF_TASK_ATTEMPT", "3");
  set("FF_TASK_OF", "c0ffee");
  EXPECT_EQ(attempt("mine", "job", "3"), "mine");
  EXPECT_EQ(attempt(nullptr, "job", "1"), "c0ffee-12.3-job.1");
  EXPECT_EQ(attempt(nullptr, "none", "1"), "c0ffee-12.3-none.1");
  EXPECT_EQ(attempt(nullptr, nullptr, nullptr), "c0ffee-12.3");
  io::SystemDisk disk;
  const auto task = saver_identity(disk, "host", "1.2").task;
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->scheduler, "c0ffee");
  EXPECT_EQ(task->task, 12u);
  EXPECT_EQ(task->number, 3u);
  for (const char* const scheduler : {"", "../up", "a b"}) {
    set("FF_TASK_OF", scheduler);
    EXPECT_FALSE(saver_identity(disk, "host", "1.2").task.has_value()) << scheduler;
  }
  for (const char* const name : {"FF_TASK", "FF_TASK_ATTEMPT", "FF_TASK_OF"}) set(name, nullptr);
}

TEST(IdentityTest, TheRankFromTheEnvironment) {
  const auto found_in = [](const char* rank, const char* world) {
    rank != nullptr ? ::setenv("RANK", rank, 1) : ::unsetenv("RANK");
    world != nullptr ? ::setenv("WORLD_SIZE", world, 1) : ::unsetenv("WORLD_SIZE");
    auto found = rank_from_environment();
    ::unsetenv("RANK");
    ::unsetenv("WORLD_SIZE");
    return found;
  };
  EXPECT_FALSE(found_in(nullptr, nullptr)->has_value());
  EXPECT_FALSE(found_in("3", nullptr)->has_value());
  const auto found = found_in("3", "8");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->rank, 3u);
  EXPECT_EQ((*found)->world, 8u);
  for (const char* const wrong : {"8", "-1", "one", ""}) {
    EXPECT_EQ(found_in(wrong, "8").error().code, Errc::usage) << wrong;
  }
  EXPECT_EQ(found_in("0", "99999999999").error().code, Errc::usage);
}

}  // namespace
}  // namespace ff::checkpoint
