// kill -9 of the scheduler, of an agent and of its shims at every single call with which they write
// down what they know: strace(1) kills a process at its Nth one. After each, whoever died is
// started again; what was submitted has to be there, to run, and never twice at once.
#include <sys/wait.h>

#include <set>

#include "e2e/schedule_hosts.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

class SchedulePoints : public ScheduleHostsTest {
 protected:
  SchedulePoints() : ScheduleHostsTest(1) {}
  void SetUp() override {
    ScheduleHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (test::run({.argv = {"strace", "-o", "/dev/null", "true"}}).exit != 0) {
      GTEST_SKIP() << "no process may trace another one here";
    }
  }

  // Follows the threads of the daemon, and all processes that come of it.
  void start_to_die(size_t host, const std::string& call, int nth) {
    Words words = {"strace", "-D",
                   "-f",     "-qq",
                   "-o",     trace(),
                   "-e",     "trace=" + call,
                   "-e",     fmt::format("inject={}:signal=KILL:when={}", call, nth)};
    for (const std::string& word : daemon_argv(host)) words.push_back(word);
    daemons_[host] = std::make_unique<test::Child>(hosts_.on(host, std::move(words)));
  }
  std::string trace() const { return at_ + "/trace"; }
  static bool has_ended(const test::Child& child) {
    siginfo_t info = {};
    const pid_t pid = child.pid();
    return ::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
  }
  void revive() {
    for (const size_t host : {scheduler_, size_t{0}}) {
      if (!has_ended(*daemons_.at(host))) continue;
      ASSERT_NO_FATAL_FAILURE(start(host));
    }
  }

  // Gives the task that was answered for, and after how many requests: each makes one task at most,
  // however often it is sent.
  std::pair<std::string, size_t> submit_one() {
    std::string id;
    size_t asked = 0;
    std::unique_ptr<test::Child> asking;
    until("a task is submitted", [&] {
      revive();
      if (asking == nullptr) {
        asking = std::make_unique<test::Child>(scheduler_command(submission("sleep 0.1")));
        asked++;
      }
      if (!has_ended(*asking)) return HasFatalFailure();
      if (asking->finish() == 0) id = asking->out.substr(0, asking->out.find('\n'));
      asking.reset();
      return !id.empty() || HasFatalFailure();
    });
    return {id, asked};
  }
  // One task, from its submission to its end. False: nobody made so many of these calls.
  bool play(size_t victim, const std::string& call, int nth, bool once) {
    SCOPED_TRACE(
        fmt::format("{} at its {} {}", victim == scheduler_ ? "scheduler" : "agent", nth, call));
    make_folders(dir_ / fmt::format("{}.{}.{}", victim, call, nth));
    for (const size_t host : {scheduler_, size_t{0}}) {
      host == victim ? start_to_die(host, call, nth) : start(host);
    }
    const auto [id, asked] = submit_one();
    json tasks;
    until("all tasks have ended", [&] {
      revive();
      tasks = data({"list", "-a", "--timeout", "1s"})["tasks"];  // it may die once more
      return HasFatalFailure() ||
             (!tasks.empty() && std::ranges::all_of(tasks, [](const json& one) {
               return one["state"] == "succeeded" || one["state"] == "failed";
             }));
    });
    EXPECT_LE(tasks.size(), asked);
    expect_all_ran(tasks, id, once);
    for (const size_t host : {size_t{0}, scheduler_}) daemons_[host]->signal(SIGTERM);
    for (const size_t host : {size_t{0}, scheduler_}) daemons_[host]->finish();
    return test::read_file(trace()).find("+++ killed by SIGKILL") != std::string::npos;
  }
  // With each of these calls, by which files and folders change: strace counts them apart. Gives
  // how many points there were.
  int play_all(size_t victim, const Words& calls, bool once) {
    int points = 0;
    for (const std::string& call : calls) {
      for (int nth = 1; !HasFailure() && play(victim, call, nth, once); nth++) points++;
    }
    return points;
  }
  void expect_all_ran(const json& tasks, const std::string& id, bool once) {
    std::multiset<std::string> ran;  // a task for each time
    for (const auto& line : split(test::read_file(out_ + "/runs"), '\n')) {
      if (!line.empty()) ran.insert(std::string(line.substr(0, line.find('.'))));
    }
    bool is_there = false;
    for (const json& one : tasks) {
      const std::string task = one["task"].dump();
      is_there = is_there || task == id;
      EXPECT_EQ(one["state"], "succeeded") << one.dump(1);
      EXPECT_EQ(one["failures"], 0) << one.dump(1);
      EXPECT_GE(ran.count(task), 1u) << one.dump(1);
      EXPECT_TRUE(!once || ran.count(task) == 1) << one.dump(1);
      ran.erase(task);
    }
    EXPECT_TRUE(is_there) << "task " << id << " is lost";
    EXPECT_TRUE(ran.empty()) << "a task ran that nobody knows";
    expect_nothing_ran_twice();
  }
};

const Words kCalls = {"fdatasync", "fsync", "ftruncate", "mkdir", "rename", "unlink", "unlinkat"};

TEST_F(SchedulePoints, WhereTheSchedulerWrites) {
  EXPECT_GT(play_all(scheduler_, {"pwrite64"}, true), 10) << "so few?";
}

TEST_F(SchedulePoints, WhereTheSchedulerChangesFiles) {
  EXPECT_GT(play_all(scheduler_, kCalls, true), 10) << "so few?";
}

TEST_F(SchedulePoints, WhereTheSchedulerAnswers) {
  for (int nth = 1; nth <= 20 && !HasFailure(); nth++) play(scheduler_, "sendmsg", nth, true);
}

// A shim that dies takes its rank along, which then runs again.
TEST_F(SchedulePoints, WhereTheAgentAndItsShimsChangeFiles) {
  Words calls = kCalls;
  calls.emplace_back("pwrite64");
  EXPECT_GT(play_all(0, calls, false), 15) << "so few?";
}

}  // namespace
}  // namespace ff::cmd
