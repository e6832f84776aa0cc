// Fixture with a scheduler and agents, each a real daemon on its own host (hosts.h). Each rank
// holds a lock while any of its processes lives, which detects a rank that runs twice.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "e2e/hosts.h"
#include "e2e/rank_dirs.h"
#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr int64_t kTimeoutNs = 150 * kSecond;

// The first commands of every rank; flock(1) fails if another instance holds the lock.
constexpr const char* kRankPrologue =
    "exec 9>$OUT/lock.$FF_TASK.$RANK; flock -n 9 || { echo $FF_TASK_RANK >>$OUT/twice; exit 99; };"
    "echo $FF_TASK_RANK >>$OUT/runs;"
    "leave() { touch $FF_TASK_DIR/ack; echo 1 >$FF_TASK_DIR/saved; exit 0; };";

class ScheduleHostsTest : public testing::Test {
 protected:
  explicit ScheduleHostsTest(size_t nodes) : nodes_(nodes), scheduler_(nodes), hosts_(nodes + 1) {}
  void SetUp() override {
    if (!hosts_.available()) GTEST_SKIP() << "network namespaces cannot be made here";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
    ASSERT_TRUE(auth::make_key_file(disk_, key()).ok());
    ASSERT_NO_FATAL_FAILURE(make_folders(dir_.path()));
  }
  void TearDown() override {
    if (HasFailure()) {
      std::cerr << list().dump(1) << "\n" << test::read_file(out_ + "/runs") << "\n";
      for (const auto& [host, daemon] : daemons_) {
        daemon->signal(SIGKILL);
        daemon->finish();
        std::cerr << "host " << host << ":\n" << daemon->err << "\n";
      }
    }
    daemons_.clear();
    for (const std::string& dir : rank_dirs(dir_.path())) end_rank(dir);
  }

  // Creates the directories for the daemons that start later.
  void make_folders(const std::string& at) {
    at_ = at;
    out_ = at + "/out";
    ASSERT_TRUE(std::filesystem::create_directories(out_));
    ASSERT_EQ(::chmod(at_.c_str(), 0711), 0);
    ASSERT_EQ(::chmod(out_.c_str(), 0777), 0);
  }

  std::string key() const { return dir_ / "key"; }
  std::string address() const { return hosts_.address(scheduler_) + ":4500"; }
  // The command of the daemon of `host`: scheduler or agent.
  Words daemon_argv(size_t host) const {
    Words words = {FF_BINARY, "schedule", "agent", "--key", key()};
    if (host == scheduler_) {
      words[2] = "serve";
      words.insert(words.end(), {"--dir", at_ + "/state", "--listen", address(), "--lease", "12s"});
      return words;
    }
    const std::string name = "n" + fmt::to_string(host);
    words.insert(words.end(),
                 {"--scheduler", address(), "--name", name, "--dir", at_ + "/" + name, "--task-dir",
                  at_ + "/" + name + "-tasks", "--listen", hosts_.address(host) + ":4510"});
    return words;
  }
  void start(size_t host) {
    daemons_[host] = std::make_unique<test::Child>(hosts_.on(host, daemon_argv(host)));
    ASSERT_TRUE(daemons_[host]->wait_for_out("listening")) << daemons_[host]->err;
  }
  void kill(size_t host) {
    daemons_.at(host)->signal(SIGKILL);
    daemons_.at(host)->finish();
  }

  // A command on the host of the scheduler, as its operator.
  test::Launch scheduler_command(Words words) const {
    words.insert(words.begin(), {FF_BINARY, "schedule"});
    auto launch = hosts_.on(scheduler_, std::move(words));
    launch.env = {{"FF_SCHEDULER", address()}, {"FF_KEY", key()}};
    return launch;
  }
  test::ProcessResult ask(Words words) { return test::run(scheduler_command(std::move(words))); }
  json data(Words words) {
    words.emplace_back("--json");
    const json parsed = json::parse(ask(std::move(words)).out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"] : json::object();
  }
  Words submission(const std::string& text, const Words& more = {}) const {
    Words words = {"submit", "--user",       "nobody", "--chdir",
                   "/",      "--no-inherit", "-e",     "OUT=" + out_};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "/bin/sh", "-c", kRankPrologue + text});
    return words;
  }
  std::string submit(const std::string& text, const Words& more = {}) {
    const auto ran = ask(submission(text, more));
    EXPECT_EQ(ran.exit, 0) << ran.err;
    return ran.out.substr(0, ran.out.find('\n'));
  }
  json nodes() { return data({"nodes"})["nodes"]; }
  json list() { return data({"list", "-a"})["tasks"]; }
  json task(const std::string& id) { return data({"show", id}); }
  bool is(const std::string& id, const std::string& state) {
    return task(id).value("state", "") == state;
  }
  json node(size_t number) {
    for (const json& one : nodes()) {
      if (one["node"] == "n" + fmt::to_string(number)) return one;
    }
    return {{"usable", false}, {"heard_s", nullptr}};
  }
  size_t usable() {
    size_t count = 0;
    for (const json& one : nodes()) count += one["usable"] ? 1 : 0;
    return count;
  }

  void until(const std::string& what, const std::function<bool()>& condition) {
    const int64_t end_ns = clock_.steady_ns() + kTimeoutNs;
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), end_ns) << "timed out waiting until " << what;
      clock_.sleep_ns(100 * kMillisecond);
    }
  }
  size_t runs() const {
    size_t lines = 0;
    for (const char c : test::read_file(out_ + "/runs")) lines += c == '\n' ? 1 : 0;
    return lines;
  }
  void put(const std::string& name) { test::write_file(out_ + "/" + name, ""); }
  void expect_nothing_ran_twice() {
    EXPECT_FALSE(std::filesystem::exists(out_ + "/twice")) << test::read_file(out_ + "/twice");
  }
  const size_t nodes_, scheduler_;  // the hosts of agents are those before the scheduler's
  test::Hosts hosts_;
  io::SystemDisk disk_;
  SystemClock clock_;
  test::TempDir dir_;
  std::string at_, out_;
  std::map<size_t, std::unique_ptr<test::Child>> daemons_;
};

}  // namespace ff::cmd
