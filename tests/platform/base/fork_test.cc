// A signal that comes between fork(2) and execve(2) ends the new program.
#include "platform/base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ff {
namespace {

TEST(Fork, ASignalBeforeExecIsNotLost) {
  const auto before = ::signal(SIGTERM, [](int) {});
  for (int i = 0; i < 50; i++) {
    const pid_t pid = fork_for_exec();
    if (pid == 0) {
      ::execl("/bin/sleep", "sleep", "5", nullptr);
      ::_exit(127);
    }
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << "in round " << i;
  }
  ::signal(SIGTERM, before);
}

TEST(Fork, WhatIsIgnoredStaysSo) {
  const auto before = ::signal(SIGINT, SIG_IGN);
  const pid_t pid = fork_for_exec();
  if (pid == 0) ::_exit(::signal(SIGINT, SIG_DFL) == SIG_IGN ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  ::signal(SIGINT, before);
}

}  // namespace
}  // namespace ff
