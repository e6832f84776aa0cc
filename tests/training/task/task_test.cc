// A task and its agent over a real directory: what one writes the other reads; files of a shell
// script; and files of any other kind, which both must ignore without blocking or following links.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "training/task/agent_task_dir.h"
#include "training/task/task_client.h"

namespace ff::task {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kNobody = 65534;
constexpr RankRange kTwo = {.first = 4, .count = 2};

class TaskTest : public testing::Test {
 protected:
  void SetUp() override {
    // Other users may traverse it, as the parent directory of an agent.
    ASSERT_EQ(::chmod(temp_.path().c_str(), 0711), 0);
    ASSERT_TRUE(agent_.create().ok());
  }

  std::string file(const std::string& name) const { return dir_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary | std::ios::trunc) << text;
  }
  std::string content(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  TaskDirSnapshot read() {
    auto snapshot = agent_.read(kTwo);
    EXPECT_TRUE(snapshot.ok());
    return snapshot ? *snapshot : TaskDirSnapshot{};
  }
  // All names in the directory and its parent.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(temp_.path())) {
      all.push_back(fs::relative(entry.path(), temp_.path()));
    }
    std::ranges::sort(all);
    return all;
  }
  // Runs `body` in a child process; returns its exit code.
  static int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  io::TempDir temp_;
  const std::string dir_ = temp_ / "task";
  io::SystemDisk disk_;
  SeededRng rng_{system_seed()};
  AgentTaskDir agent_{disk_, rng_, dir_};
  TaskClient task_{disk_, rng_, dir_};
};

TEST_F(TaskTest, EachReadsWhatTheOtherWrote) {
  EXPECT_FALSE(task_.should_stop());
  EXPECT_EQ(task_.life_state().value(), 0u);
  const TaskDirSnapshot before = read();
  EXPECT_FALSE(before.stop || before.acked || before.saved || before.life_state);
  EXPECT_TRUE(before.heartbeats.empty() && before.ignored.empty());

  ASSERT_TRUE(agent_.set_life_state(4'000'000'000).ok());
  EXPECT_EQ(task_.life_state().value(), 4'000'000'000);
  ASSERT_TRUE(task_.set_life_state(UINT32_MAX).ok());
  ASSERT_TRUE(task_.saved(120).ok());
  ASSERT_TRUE(task_.heartbeat({.rank = 5, .step = 121}).ok());
  ASSERT_TRUE(task_.heartbeat({.rank = 7, .step = 1}).ok());  // of another node
  const StopRequest request = {.reason = "preempted", .deadline_s = 1'790'000'000};
  ASSERT_TRUE(agent_.request_stop(request).ok());
  TaskDirSnapshot now = read();
  EXPECT_EQ(now.stop, request);
  EXPECT_FALSE(now.acked) << "the task has not read the request yet";
  EXPECT_EQ(now.saved, 120u);
  EXPECT_EQ(now.life_state, UINT32_MAX);
  ASSERT_EQ(now.heartbeats.size(), 1u);
  EXPECT_EQ(now.heartbeats[0].rank, 5u);
  EXPECT_EQ(now.heartbeats[0].step, 121u);
  struct stat status = {};
  ASSERT_EQ(::stat(file("heartbeat.5").c_str(), &status), 0);
  EXPECT_EQ(now.heartbeats[0].mtime_ns,
            status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);

  EXPECT_EQ(task_.should_stop(), request);
  EXPECT_TRUE(read().acked);
  ASSERT_TRUE(agent_.request_stop({.reason = "stopped", .deadline_s = 9}).ok());
  EXPECT_EQ(task_.should_stop()->reason, "stopped");
  ASSERT_TRUE(task_.saved(UINT64_MAX).ok());
  EXPECT_EQ(read().saved, UINT64_MAX);
  ASSERT_TRUE(task_.saved(3).ok());
  EXPECT_EQ(read().saved, 3u) << "a task may go back to an earlier step";
  EXPECT_EQ(names(),
            (std::vector<std::string>{"task", "task/ack", "task/heartbeat.5", "task/heartbeat.7",
                                      "task/life_state", "task/saved", "task/stop"}));
}

TEST_F(TaskTest, AShellScriptWorksToo) {
  ASSERT_TRUE(agent_.request_stop({.reason = "drained", .deadline_s = 77}).ok());
  ASSERT_TRUE(agent_.set_life_state(6).ok());
  ::setenv("FF_TASK_DIR", dir_.c_str(), 1);
  EXPECT_EQ(task_dir_from_environment(), dir_);
  const int status = std::system(
      "cd \"$FF_TASK_DIR\" && read reason deadline <stop && [ $reason = drained ] && "
      "[ $deadline = 77 ] && touch ack && echo 120 >saved && echo 9 >heartbeat.4 && "
      "echo $(($(cat life_state) + 1)) >life_state");
  ::unsetenv("FF_TASK_DIR");
  EXPECT_FALSE(task_dir_from_environment());
  ::setenv("FF_TASK_DIR", "", 1);
  EXPECT_FALSE(task_dir_from_environment());
  ::unsetenv("FF_TASK_DIR");
  ASSERT_EQ(status, 0);
  const TaskDirSnapshot now = read();
  EXPECT_TRUE(now.acked);
  EXPECT_EQ(now.saved, 120u);
  EXPECT_EQ(now.life_state, 7u);
  ASSERT_EQ(now.heartbeats.size(), 1u);
  EXPECT_EQ(now.heartbeats[0].step, 9u);
}

TEST_F(TaskTest, AHalfWrittenFileIsIgnored) {
  put("saved", "12");
  put("stop", "preempted 17");
  put("heartbeat.4", "");
  const TaskDirSnapshot now = read();
  EXPECT_FALSE(now.saved || now.stop);
  EXPECT_TRUE(now.heartbeats.empty());
  EXPECT_EQ(now.ignored.size(), 3u);
  EXPECT_FALSE(task_.should_stop());
  EXPECT_FALSE(fs::exists(file("ack"))) << "the request is incomplete";
  put("saved", "120\n");
  put("stop", " preempted\t1790000000 \n");
  EXPECT_EQ(read().saved, 120u);
  EXPECT_EQ(task_.should_stop()->deadline_s, 1'790'000'000);
}

TEST_F(TaskTest, MalformedFilesAreIgnored) {
  for (const std::string text : {"\n", "-1\n", "1.5\n", "0x10\n", "18446744073709551616\n",
                                 "1\n2\n", "1 2\n", "12\r\n", "\xff\xfe\n", "step 3\n"}) {
    put("saved", text);
    put("life_state", text);
    put("heartbeat.5", text);
    const TaskDirSnapshot now = read();
    EXPECT_FALSE(now.saved || now.life_state) << text;
    EXPECT_TRUE(now.heartbeats.empty()) << text;
    EXPECT_EQ(now.ignored.size(), 3u) << text;
    EXPECT_EQ(task_.life_state().error().code, Errc::corrupt) << text;
  }
  put("saved", std::string("1\0\n", 3));
  put("life_state", "4294967296\n");
  EXPECT_FALSE(read().saved || read().life_state);
  for (const std::string text :
       {"\n", "preempted\n", "17\n", "Preempted 17\n", "pre\x1b[2J 17\n", "preempted 17 18\n",
        "preempted -17\n", "preempted 9223372036854775808\n", " \n",
        "a-reason-that-is-longer-than-any 17\n"}) {
    put("stop", text);
    EXPECT_FALSE(task_.should_stop()) << text;
    EXPECT_FALSE(read().stop) << text;
  }
  EXPECT_FALSE(fs::exists(file("ack")));
  ASSERT_TRUE(task_.set_life_state(1).ok());
  EXPECT_EQ(task_.life_state().value(), 1u);
}

TEST_F(TaskTest, LinksAreNotFollowed) {
  std::ofstream(temp_ / "elsewhere") << "77\n";
  for (const std::string name : {"saved", "heartbeat.4", "life_state", "ack"}) {
    fs::create_symlink(temp_ / "elsewhere", file(name));
  }
  const TaskDirSnapshot now = read();
  EXPECT_FALSE(now.saved || now.life_state || now.acked);
  EXPECT_TRUE(now.heartbeats.empty());
  ASSERT_EQ(now.ignored.size(), 3u);
  EXPECT_NE(now.ignored[0].find("saved"), std::string::npos) << now.ignored[0];
  EXPECT_EQ(task_.life_state().error().code, Errc::corrupt);
  // Writing replaces the link.
  fs::create_symlink(temp_ / "elsewhere", file("stop"));
  ASSERT_TRUE(agent_.request_stop({.reason = "drained", .deadline_s = 5}).ok());
  ASSERT_TRUE(agent_.set_life_state(8).ok());
  ASSERT_TRUE(task_.saved(9).ok());
  ASSERT_TRUE(task_.should_stop());
  EXPECT_EQ(read().saved, 9u);
  EXPECT_EQ(read().life_state, 8u);
  EXPECT_TRUE(read().acked);
  EXPECT_EQ(content("../elsewhere"), "77\n");
  // The directory itself must not be a link.
  fs::create_symlink(dir_, temp_ / "alias");
  AgentTaskDir through_link(disk_, rng_, temp_ / "alias");
  EXPECT_FALSE(through_link.read(kTwo).ok());
  EXPECT_EQ(through_link.create().error().code, Errc::refused);
}

TEST_F(TaskTest, PipesDoNotBlock) {
  for (const std::string name : {"saved", "heartbeat.4", "life_state", "ack", "stop"}) {
    ASSERT_EQ(::mkfifo(file(name).c_str(), 0666), 0);
  }
  const TaskDirSnapshot now = read();
  EXPECT_FALSE(now.saved || now.life_state || now.acked || now.stop);
  EXPECT_EQ(now.ignored.size(), 4u);
  EXPECT_FALSE(task_.should_stop());
  EXPECT_FALSE(task_.life_state().ok());
  ASSERT_TRUE(agent_.request_stop({.reason = "drained", .deadline_s = 5}).ok());
  EXPECT_TRUE(task_.should_stop());
  EXPECT_TRUE(read().acked);
}

TEST_F(TaskTest, DirectoriesAndLargeFilesAreIgnored) {
  ASSERT_EQ(::mkdir(file("life_state").c_str(), 0700), 0);
  put("saved", std::string(kTaskFileMax, '0') + "\n");
  put("heartbeat.4", std::string(kTaskFileMax - 2, ' ') + "1\n");  // exactly the limit
  put("heartbeat.5", "1\n");
  ASSERT_EQ(::truncate(file("heartbeat.5").c_str(), 1LL << 40), 0);
  const TaskDirSnapshot now = read();
  EXPECT_FALSE(now.saved || now.life_state);
  ASSERT_EQ(now.heartbeats.size(), 1u);
  EXPECT_EQ(now.heartbeats[0].step, 1u);
  EXPECT_EQ(now.ignored.size(), 3u);
  const auto before = names();
  EXPECT_FALSE(task_.set_life_state(1).ok());
  EXPECT_FALSE(agent_.set_life_state(1).ok());
  EXPECT_EQ(names(), before) << "a failed write leaves a temporary file";
  EXPECT_TRUE(fs::is_directory(file("life_state")));
}

TEST_F(TaskTest, ADirectoryThatCannotBeWritten) {
  ASSERT_TRUE(task_.saved(1).ok());
  ASSERT_TRUE(agent_.request_stop({.reason = "drained", .deadline_s = 5}).ok());
  ASSERT_EQ(::chmod(dir_.c_str(), 0555), 0);
  EXPECT_EQ(in_child([this] {
              if (::geteuid() == 0 && ::seteuid(kNobody) != 0) return 10;
              const auto saved = task_.saved(2);
              if (saved || saved.error().code != Errc::refused) return 11;
              if (saved.error().message.find("'saved' of the task") == std::string::npos) return 12;
              if (saved.error().hint.empty()) return 13;
              if (task_.heartbeat({.rank = 4, .step = 1}) || task_.set_life_state(1)) return 14;
              // The request is returned though it cannot be acknowledged.
              return task_.should_stop() ? 0 : 15;
            }),
            0);
  ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  EXPECT_EQ(read().saved, 1u);
  EXPECT_FALSE(read().acked);
  EXPECT_TRUE(task_.should_stop());
  EXPECT_TRUE(read().acked) << "the next call acknowledges it";

  TaskClient nowhere(disk_, rng_, temp_ / "nowhere");
  EXPECT_FALSE(nowhere.should_stop());
  const auto saved = nowhere.saved(1);
  EXPECT_EQ(saved.error().code, Errc::not_found);
  EXPECT_NE(saved.error().hint.find("FF_TASK_DIR"), std::string::npos) << saved.error().hint;
  EXPECT_EQ(AgentTaskDir(disk_, rng_, temp_ / "nowhere").read(kTwo).error().code, Errc::not_found);
  EXPECT_EQ(AgentTaskDir(disk_, rng_, file("saved")).create().error().code, Errc::refused);
  EXPECT_FALSE(AgentTaskDir(disk_, rng_, file("saved")).read(kTwo).ok());
}

TEST_F(TaskTest, AFullDiskKeepsTheOldFiles) {
  ASSERT_TRUE(task_.saved(1).ok());
  const auto before = names();
  EXPECT_EQ(in_child([this] {
              const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
              ::signal(SIGXFSZ, SIG_IGN);
              if (::setrlimit(RLIMIT_FSIZE, &none) != 0) return 10;
              return task_.saved(2) || agent_.set_life_state(1) ? 11 : 0;
            }),
            0);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(read().saved, 1u);
}

TEST_F(TaskTest, InvalidRequestsAreRefused) {
  EXPECT_EQ(agent_.request_stop({.reason = "", .deadline_s = 1}).error().code, Errc::usage);
  EXPECT_EQ(agent_.request_stop({.reason = "a b", .deadline_s = 1}).error().code, Errc::usage);
  EXPECT_EQ(agent_.request_stop({.reason = "a\nb", .deadline_s = 1}).error().code, Errc::usage);
  EXPECT_EQ(agent_.request_stop({.reason = std::string(32, 'a'), .deadline_s = 1}).error().code,
            Errc::usage);
  EXPECT_EQ(agent_.request_stop({.reason = "drained", .deadline_s = -1}).error().code, Errc::usage);
  EXPECT_EQ(names(), std::vector<std::string>{"task"});
  const StopRequest longest = {.reason = std::string(kReasonMax, 'z'), .deadline_s = INT64_MAX};
  ASSERT_TRUE(agent_.request_stop(longest).ok());
  EXPECT_EQ(task_.should_stop(), longest);
  EXPECT_EQ(agent_.read({.first = 0, .count = kNodeRanksMax + 1}).error().code, Errc::usage);
  EXPECT_EQ(agent_.read({.first = UINT32_MAX, .count = 2}).error().code, Errc::usage);
  EXPECT_TRUE(agent_.read({.first = UINT32_MAX - 1, .count = 1}).ok());
}

// Several processes write at the same time: each read finds a complete number.
TEST_F(TaskTest, ManyWritersAtOnce) {
  constexpr uint64_t kWrites = 400;
  ASSERT_TRUE(task_.saved(10'000'000'000).ok());
  std::vector<pid_t> writers;
  for (uint64_t writer = 1; writer <= 4; writer++) {
    const pid_t child = ::fork();
    if (child > 0) {
      writers.push_back(child);
      continue;
    }
    SeededRng rng(system_seed());
    TaskClient client(disk_, rng, dir_);
    for (uint64_t i = 0; i < kWrites; i++) {
      // Different lengths: half a number would be another number.
      const bool written = client.saved(i % 2 == 0 ? writer : 10'000'000'000).ok() &&
                           client.heartbeat({.rank = 4, .step = i}).ok() &&
                           client.set_life_state(7).ok();
      if (!written) ::_exit(1);
    }
    ::_exit(0);
  }
  size_t running = writers.size(), reads = 0;
  while (running > 0) {
    const TaskDirSnapshot now = read();
    ASSERT_TRUE(now.ignored.empty()) << now.ignored[0];
    ASSERT_TRUE(now.saved && (*now.saved <= 4 || *now.saved == 10'000'000'000));
    ASSERT_TRUE(now.heartbeats.empty() || now.heartbeats[0].step < kWrites);
    reads++;
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) <= 0) continue;
    EXPECT_EQ(status, 0);
    running--;
  }
  EXPECT_GT(reads, 1u);
  EXPECT_EQ(read().life_state, 7u);
  EXPECT_EQ(names().size(), 4u) << "a temporary file is left";
}

// As root the agent creates the directory for another user, who may do anything in it and nothing
// beside it.
TEST_F(TaskTest, ATaskOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may change owners";
  const std::string dir = temp_ / "theirs";
  AgentTaskDir agent(disk_, rng_, dir, FileOwner{.uid = kNobody, .gid = kNobody});
  ASSERT_TRUE(agent.create().ok());
  ASSERT_TRUE(agent.create().ok()) << "creating it again changes nothing";
  struct stat status = {};
  ASSERT_EQ(::stat(dir.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kNobody);
  EXPECT_EQ(status.st_gid, kNobody);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  const mode_t mask = ::umask(077);  // a strict umask of a daemon
  ASSERT_TRUE(agent.request_stop({.reason = "drained", .deadline_s = 5}).ok());
  ASSERT_TRUE(agent.set_life_state(3).ok());
  ::umask(mask);
  EXPECT_EQ(in_child([&] {
              if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 10;
              TaskClient client(disk_, rng_, dir);
              if (!client.should_stop() || client.life_state().value() != 3) return 11;
              if (std::system(("echo 4 >" + dir + "/life_state").c_str()) != 0) return 12;
              return client.saved(6) ? 0 : 13;
            }),
            0);
  const auto now = agent.read(kTwo);
  ASSERT_TRUE(now.ok());
  EXPECT_TRUE(now->acked);
  EXPECT_EQ(now->saved, 6u);
  EXPECT_EQ(now->life_state, 4u);
}

}  // namespace
}  // namespace ff::task
