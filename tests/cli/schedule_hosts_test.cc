// A scheduler and eight nodes, each a host of its own (hosts.h) with real daemons: networks that
// are cut, and everything killed all the time. Each rank holds a lock for as long as anything of it
// lives, so two of one rank at once would be seen.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/child.h"
#include "cli/hosts.h"
#include "cli/rank_dirs.h"
#include "io/system_disk.h"
#include "net/key.h"
#include "shim/control.h"

namespace ff::cmd {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr size_t kNodes = 8, kScheduler = kNodes;
constexpr int64_t kMostNs = 150 * kSecond;

// What every rank begins with; flock(1) fails where another one has it.
constexpr const char* kAlone =
    "exec 9>$OUT/lock.$FF_TASK.$RANK; flock -n 9 || { echo $FF_TASK_RANK >>$OUT/twice; exit 99; };"
    "echo $FF_TASK_RANK >>$OUT/runs;"
    "leave() { touch $FF_TASK_DIR/ack; echo 1 >$FF_TASK_DIR/saved; exit 0; };";

class ScheduleHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.made()) GTEST_SKIP() << "network namespaces cannot be made here";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
    ASSERT_EQ(::mkdir(out_.c_str(), 0777), 0);
    ASSERT_EQ(::chmod(out_.c_str(), 0777), 0);
    ASSERT_TRUE(net::make_key_file(disk_, key()).ok());
    start_scheduler();
    for (size_t node = 0; node < kNodes; node++) start_agent(node);
    until("all nodes are there", [&] { return usable() == kNodes; });
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

  std::string key() const { return dir_ / "key"; }
  std::string address() const { return hosts_.address(kScheduler) + ":4500"; }
  void start(size_t host, Words words) {
    words.insert(words.begin(), {FF_BINARY, "schedule"});
    words.insert(words.end(), {"--key", key()});
    daemons_[host] = std::make_unique<test::Child>(hosts_.on(host, std::move(words)));
    ASSERT_TRUE(daemons_[host]->wait_for_out("listening")) << daemons_[host]->err;
  }
  void start_scheduler() {
    start(kScheduler, {"serve", "--dir", dir_ / "state", "--listen", address(), "--lease", "12s"});
  }
  void start_agent(size_t node) {
    const std::string name = "n" + fmt::to_string(node);
    start(node,
          {"agent", "--scheduler", address(), "--name", name, "--dir", dir_ / name, "--task-dir",
           dir_ / (name + "-tasks"), "--listen", hosts_.address(node) + ":4510"});
  }
  void kill(size_t host) {
    daemons_.at(host)->signal(SIGKILL);
    daemons_.at(host)->finish();
  }
  void start_again(size_t host) { host == kScheduler ? start_scheduler() : start_agent(host); }
  void cut(size_t node) {
    hosts_.cut(node, kScheduler);
    hosts_.cut(kScheduler, node);
  }
  void mend(size_t node) {
    hosts_.mend(node, kScheduler);
    hosts_.mend(kScheduler, node);
  }

  // On the scheduler's host, as its operator.
  test::Ran ask(Words words) {
    words.insert(words.begin(), {FF_BINARY, "schedule"});
    auto launch = hosts_.on(kScheduler, std::move(words));
    launch.env = {{"FF_SCHEDULER", address()}, {"FF_KEY", key()}};
    return test::run(launch);
  }
  json data(Words words) {
    words.emplace_back("--json");
    const json parsed = json::parse(ask(std::move(words)).out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"] : json::object();
  }
  std::string submit(const std::string& text, Words more = {}) {
    Words words = {"submit", "--user",       "nobody", "--chdir",
                   "/",      "--no-inherit", "-e",     "OUT=" + out_};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "/bin/sh", "-c", kAlone + text});
    const auto ran = ask(words);
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
    const int64_t end_ns = clock_.steady_ns() + kMostNs;
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), end_ns) << "it does not come to this: " << what;
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
    EXPECT_FALSE(fs::exists(out_ + "/twice")) << test::read_file(out_ + "/twice");
  }
  static constexpr const char* kWaits =
      "while [ ! -e $OUT/go ]; do [ ! -e $FF_TASK_DIR/stop ] || leave; sleep 0.05; done";

  test::Hosts hosts_{kNodes + 1};
  io::SystemDisk disk_;
  SystemClock clock_;
  test::TempDir dir_;
  const std::string out_ = dir_ / "out";
  std::map<size_t, std::unique_ptr<test::Child>> daemons_;
};

TEST_F(ScheduleHosts, ACutShorterThanTheLeaseIsNotNoticed) {
  const std::string id = submit(kWaits, {"-n", "8"});
  until("all ranks run", [&] { return runs() == kNodes; });
  cut(3);
  until("it is silent", [&] { return node(3)["heard_s"].is_number() && node(3)["heard_s"] > 5; });
  mend(3);
  until("it is back", [&] { return node(3)["heard_s"].is_number() && node(3)["heard_s"] < 3; });
  put("go");
  until("it has ended", [&] { return is(id, "succeeded"); });
  EXPECT_EQ(task(id)["attempts_made"], 1);
  EXPECT_EQ(runs(), kNodes);
  expect_nothing_ran_twice();
}

TEST_F(ScheduleHosts, ACutLongerThanTheLeaseMovesTheGang) {
  const std::string id = submit(kWaits, {"-n", "2"});
  until("both ranks run", [&] { return runs() == 2; });
  const std::string name = task(id)["attempts"][0]["nodes"][0];
  const size_t lost = name.back() - '0';
  cut(lost);
  until("it runs elsewhere", [&] { return runs() == 4; });
  EXPECT_EQ(task(id)["attempts_made"], 2);
  EXPECT_EQ(task(id)["failures"], 0);
  EXPECT_FALSE(node(lost)["usable"]);
  mend(lost);
  until("the node is back", [&] { return node(lost)["usable"] == true; });
  put("go");
  until("it has ended", [&] { return is(id, "succeeded"); });
  EXPECT_EQ(runs(), 4u);
  expect_nothing_ran_twice();
}

TEST_F(ScheduleHosts, EverythingIsKilledAllTheTime) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRng rng(seed);
  std::vector<std::string> ids;
  for (int number = 0; number < 14; number++) {
    const std::string nodes = fmt::to_string(1 + rng.below(4));
    const std::string priority = fmt::to_string(10 * rng.below(3));
    // Goes on where it was when it was asked to leave; whatever else happens, from the start.
    ids.push_back(
        submit("at=$OUT/at.$FF_TASK.$RANK; step=$(cat $at 2>/dev/null || echo 0);"
               "while [ $step -lt 30 ]; do step=$((step + 1)); sleep 0.1;"
               "  [ ! -e $FF_TASK_DIR/stop ] || { echo $step >$at; leave; }; done",
               {"-n", nodes, "-p", priority}));
  }
  const int64_t end_ns = clock_.steady_ns() + 25 * kSecond;
  while (clock_.steady_ns() < end_ns) {
    clock_.sleep_ns(static_cast<int64_t>(rng.below(1500)) * kMillisecond);
    const uint64_t what = rng.below(10);
    const size_t host = rng.below(kNodes);
    if (what < 4) {
      kill(host);
      clock_.sleep_ns(static_cast<int64_t>(rng.below(1000)) * kMillisecond);
      start_again(host);
    } else if (what < 6) {
      kill(kScheduler);
      start_again(kScheduler);
    } else if (what < 8) {
      cut(host);
      clock_.sleep_ns(static_cast<int64_t>(rng.below(4000)) * kMillisecond);
      mend(host);
    } else {
      const auto dirs = rank_dirs(dir_.path());
      if (dirs.empty()) continue;
      const auto state = shim::read_state(disk_, dirs[rng.below(dirs.size())]);
      if (state && state->phase == shim::Phase::running && state->running) {
        (void)::kill(state->running->shim.pid, SIGKILL);
      }
    }
    if (HasFatalFailure()) return;
  }
  until("all tasks have ended", [&] {
    const json all = list();
    return all.size() == ids.size() && std::ranges::all_of(all, [](const json& one) {
             return one["state"] == "succeeded" || one["state"] == "failed";
           });
  });
  for (const json& one : list()) {
    EXPECT_EQ(one["state"], "succeeded") << one.dump(1);
    EXPECT_EQ(one["failures"], 0) << one.dump(1);
  }
  expect_nothing_ran_twice();
}

}  // namespace
}  // namespace ff::cmd
