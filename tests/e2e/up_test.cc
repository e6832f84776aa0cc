// `ff up` and `ff down` for real: a whole cluster of daemons in a folder of a test's own, its
// daemons and its supervisor killed, stopped, brought up again, and removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "platform/base/clock.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

json data_of(const ProcessResult& ran) {
  const json parsed = json::parse(ran.out, nullptr, false);
  return parsed.is_object() && parsed["data"].is_object() ? parsed["data"] : json::object();
}

class UpTest : public testing::Test {
 protected:
  // Bytes that no compression makes small and no two of which are alike for long.
  UpTest() {
    uint32_t state = 12345;
    for (size_t i = 0; i < kBytes; i++) {
      state = state * 1664525 + 1013904223;
      bytes_ += static_cast<char>(state >> 24);
    }
    write_file(dir_ / "file", bytes_);
  }
  ~UpTest() override {
    const ProcessResult down = run_ff({"down", "--dir", folder_});
    if (fs::exists(folder_)) {
      EXPECT_EQ(down.exit, 0) << down.err;
    }
    EXPECT_EQ(processes(), std::set<pid_t>()) << "something still runs";
  }

  // On a busy machine the daemons take longer than the usual timeout.
  ProcessResult up(Words more = {}) {
    Words words = {"up", "--dir", folder_, "--json", "--timeout", "4m"};
    words.insert(words.end(), more.begin(), more.end());
    return run_ff(std::move(words));
  }
  // With the cluster's address and key, as `up` says them.
  ProcessResult ff(const json& told, Words words) {
    return run_ff(std::move(words), {{"FF_META", told["meta"]}, {"FF_KEY", told["key"]}});
  }
  void copy_in(const json& told) {
    const ProcessResult copied = ff(told, {"fs", "cp", dir_ / "file", "ff:///file"});
    ASSERT_EQ(copied.exit, 0) << copied.err;
  }
  void compare_out(const json& told) {
    const std::string to = dir_ / "back";
    fs::remove(to);
    const ProcessResult copied = ff(told, {"fs", "cp", "ff:///file", to});
    ASSERT_EQ(copied.exit, 0) << copied.err;
    EXPECT_TRUE(read_file(to) == bytes_);
  }
  // Those that have the folder in their command lines.
  std::set<pid_t> processes() const { return test::processes(folder_); }
  pid_t pid_of(const json& told, const std::string& name) const {
    for (const json& one : told["daemons"]) {
      if (one["name"] == name) return one["pid"];
    }
    return 0;
  }
  void until(const std::string& what, const std::function<bool()>& condition) {
    SystemClock clock;
    const int64_t end_ns = clock.steady_ns() + 240 * kSecond;
    while (!condition()) {
      ASSERT_LT(clock.steady_ns(), end_ns) << "timed out waiting until " << what;
      clock.sleep_ns(50 * kMillisecond);
    }
  }

  static constexpr size_t kBytes = 5'000'001;
  TempDir dir_;
  const std::string folder_ = dir_ / "cluster";
  std::string bytes_;
};

TEST_F(UpTest, OneCommandMakesAClusterThatAnotherStops) {
  const ProcessResult first = up();
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  EXPECT_FALSE(told["ran_before"]);
  EXPECT_EQ(told["storage"].size(), 3u);
  EXPECT_EQ(told["daemons"].size(), 4u);
  EXPECT_EQ(fs::status(std::string(told["key"])).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  const json status = data_of(ff(told, {"admin", "status", "--json"}));
  EXPECT_EQ(status["chains"]["all"], 6);
  EXPECT_EQ(status["chains"]["whole"], 6);
  EXPECT_NE(run_ff({"admin", "status", "--meta", told["meta"]}).exit, 0) << "without the key";
  copy_in(told);
  compare_out(told);

  const auto running = processes();
  const ProcessResult second = up();
  EXPECT_EQ(second.exit, 0) << second.err;
  EXPECT_TRUE(data_of(second)["ran_before"]);
  EXPECT_EQ(data_of(second)["meta"], told["meta"]);
  EXPECT_EQ(processes(), running);

  const ProcessResult shown = run_ff({"up", "--dir", folder_});
  EXPECT_NE(shown.err.find("it is already running"), std::string::npos) << shown.err;
  EXPECT_NE(shown.out.find(told["meta"]), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("ff down --dir " + folder_), std::string::npos) << shown.out;

  const ProcessResult other = up({"--storage", "5"});
  EXPECT_EQ(other.exit, 5) << other.out;
  EXPECT_NE(other.out.find("3 storage daemons, 2 replicas"), std::string::npos) << other.out;

  const ProcessResult down = run_ff({"down", "--dir", folder_});
  EXPECT_EQ(down.exit, 0) << down.err;
  EXPECT_EQ(down.out, "stopped " + folder_ + "\n");
  EXPECT_EQ(processes(), std::set<pid_t>());
  EXPECT_EQ(run_ff({"down", "--dir", folder_}).out, "nothing runs in " + folder_ + "\n");

  EXPECT_EQ(up({"--replicas", "3"}).exit, 5);
  const ProcessResult again = up({"--storage", "3"});
  ASSERT_EQ(again.exit, 0) << again.out;
  EXPECT_EQ(data_of(again)["meta"], told["meta"]);
  EXPECT_EQ(data_of(again)["storage"], told["storage"]);
  compare_out(data_of(again));

  const ProcessResult purged = run_ff({"down", "--dir", folder_, "--purge"});
  EXPECT_EQ(purged.exit, 0) << purged.err;
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(run_ff({"down", "--dir", folder_, "--purge"}).exit, 0);
}

TEST_F(UpTest, ADaemonThatDiesIsStartedAgainAndThatIsReported) {
  const ProcessResult first = up();
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  copy_in(told);
  ASSERT_EQ(::kill(pid_of(told, "storage-2"), SIGKILL), 0);
  until("the node is known to have been started again", [&] {
    const json status = data_of(ff(told, {"admin", "status", "--json"}));
    return status.contains("nodes") && status["nodes"].size() == 3 &&
           status["nodes"][1]["restarts"] == 1 && status["nodes"][0]["restarts"] == 0 &&
           status["chains"]["whole"] == 6;
  });
  const std::string shown = ff(told, {"admin", "status"}).out;
  EXPECT_NE(shown.find("node 2 (storage-2) has restarted once"), shown.npos) << shown;
  const json again = data_of(up());
  EXPECT_NE(pid_of(again, "storage-2"), pid_of(told, "storage-2"));
  EXPECT_EQ(pid_of(again, "storage-1"), pid_of(told, "storage-1"));
  for (const json& one : again["daemons"]) {
    EXPECT_EQ(one["restarts"], one["name"] == "storage-2" ? 1 : 0) << one;
  }
  EXPECT_NE(run_ff({"up", "--dir", folder_}).out.find("storage-2 has restarted once"),
            std::string::npos);
  compare_out(told);

  ASSERT_EQ(::kill(pid_of(told, "meta"), SIGKILL), 0);
  until("serve-meta is there again", [&] {
    return ff(told, {"admin", "status"}).exit == 0 && data_of(up())["meta"] == told["meta"];
  });
  compare_out(told);
}

// As a loss of power does, but for what the kernel still writes.
TEST_F(UpTest, WhatWasKilledGoesOnWithAllData) {
  const ProcessResult first = up();
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  copy_in(told);
  ASSERT_EQ(::kill(told["supervisor"], SIGKILL), 0);
  const ProcessResult again = up();
  ASSERT_EQ(again.exit, 0) << again.out << again.err;
  EXPECT_FALSE(data_of(again)["ran_before"]);
  EXPECT_EQ(data_of(again)["meta"], told["meta"]);
  EXPECT_EQ(data_of(again)["storage"], told["storage"]);
  for (const json& one : data_of(again)["daemons"]) EXPECT_EQ(one["restarts"], 0) << one;
  compare_out(data_of(again));

  // Its daemons go with it, also when nobody starts another.
  ASSERT_EQ(::kill(data_of(again)["supervisor"], SIGKILL), 0);
  until("all daemons have gone with their supervisor", [&] { return processes().empty(); });
  EXPECT_EQ(run_ff({"down", "--dir", folder_}).out, "nothing runs in " + folder_ + "\n");
}

TEST_F(UpTest, InTheForegroundItStopsWithItsCaller) {
  Child child({.argv = {FF_BINARY, "up", "--dir", folder_, "--storage", "1", "--foreground"}});
  ASSERT_TRUE(child.wait_for_out("stop it")) << child.err;
  EXPECT_GE(processes().size(), 4u);
  child.signal(SIGTERM);
  EXPECT_EQ(child.finish(), 0) << child.err;
  EXPECT_EQ(processes(), std::set<pid_t>());

  Child killed({.argv = {FF_BINARY, "up", "--dir", folder_, "--foreground"}});
  ASSERT_TRUE(killed.wait_for_out("stop it")) << killed.err;
  killed.signal(SIGKILL);
  until("all has ended with the one in the foreground", [&] { return processes().empty(); });
}

TEST_F(UpTest, InterruptedItLeavesNothingRunningAndCanBeDoneAgain) {
  Child child({.argv = {FF_BINARY, "up", "--dir", folder_}});
  until("something runs", [&] { return processes().size() >= 3; });
  child.signal(SIGINT);
  const int exit = child.finish();
  EXPECT_TRUE(exit == 130 || exit == 0) << exit;  // 0: it was done before
  if (exit == 130) {
    EXPECT_EQ(processes(), std::set<pid_t>());
  }
  const ProcessResult again = up();
  ASSERT_EQ(again.exit, 0) << again.out << again.err;
  copy_in(data_of(again));
  compare_out(data_of(again));
}

TEST_F(UpTest, WhatCannotBeDoneIsSaid) {
  write_file(dir_ / "mine/thesis.tex", "mine");
  const ProcessResult foreign = run_ff({"up", "--dir", dir_ / "mine"});
  EXPECT_EQ(foreign.exit, 5);
  EXPECT_NE(foreign.err.find("thesis.tex"), std::string::npos) << foreign.err;
  const ProcessResult purge = run_ff({"down", "--dir", dir_ / "mine", "--purge"});
  EXPECT_EQ(purge.exit, 5);
  EXPECT_EQ(read_file(dir_ / "mine/thesis.tex"), "mine");

  fs::create_directory(dir_ / "small");
  const ProcessResult file = run_ff({"up", "--dir", dir_ / "file"});
  EXPECT_EQ(file.exit, 1) << file.err;
  EXPECT_EQ(run_ff({"up", "--dir", "/proc/nowhere"}).exit, 1);
  if (std::system(("mount -t tmpfs -o size=1m ff " + (dir_ / "small") + " 2>&1").c_str()) == 0) {
    const ProcessResult full = run_ff({"up", "--dir", dir_ / "small/cluster"});
    EXPECT_EQ(std::system(("umount " + (dir_ / "small")).c_str()), 0);
    EXPECT_EQ(full.exit, 1);
    EXPECT_NE(full.err.find("a new cluster needs 64.0MiB"), std::string::npos) << full.err;
  }
  const ProcessResult copies = up({"--storage", "2", "--replicas", "3"});
  EXPECT_EQ(copies.exit, 2) << copies.out;
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(UpTest, ADaemonThatDoesNotComeUpIsNamedWithItsLastWords) {
  const ProcessResult first = up({"--storage", "1"});
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  fs::remove_all(folder_ + "/storage-1");
  write_file(folder_ + "/storage-1", "no folder");
  const ProcessResult again = run_ff({"up", "--dir", folder_});
  EXPECT_EQ(again.exit, 1) << again.err;
  EXPECT_NE(again.err.find("storage-1 does not start (exit 1)"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("Not a directory"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("log/storage-1.log"), std::string::npos) << again.err;
  EXPECT_EQ(processes(), std::set<pid_t>());
}

// As root its tasks are those of another user.
TEST_F(UpTest, ASchedulerAndItsNodeComeAndGoWithIt) {
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
  ASSERT_EQ(up({"--storage", "1"}).exit, 0);
  const ProcessResult late = up({"--schedule"});
  EXPECT_EQ(late.exit, 5) << late.err;
  EXPECT_NE(late.out.find("it is already running, without a scheduler"), std::string::npos)
      << late.out;
  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  const ProcessResult first = up({"--schedule"});
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  EXPECT_EQ(told["daemons"].size(), 4u);
  // The link logs in once; then there is a new one.
  const auto open_page = [](const std::string& link) {
    return run({.argv = {"python3", "-c",
                         "import sys, urllib.request as r\n"
                         "opener = r.build_opener(r.HTTPCookieProcessor())\n"
                         "print(opener.open(sys.argv[1]).read().decode())",
                         link}});
  };
  const std::string link = told["page"];
  EXPECT_TRUE(has(open_page(link).out, "<title>")) << link;
  EXPECT_NE(open_page(link).exit, 0);
  std::string next;
  until("there is a new link", [&] { return (next = data_of(up())["page"]) != link; });
  EXPECT_EQ(open_page(next).exit, 0) << next;
  const auto schedule = [&](Words words) {
    words.insert(words.begin(), "schedule");
    words.insert(words.begin() + 2, {"--scheduler", told["scheduler"], "--key", told["key"]});
    return run_ff(std::move(words));
  };
  const Words who = ::geteuid() == 0 ? Words{"--user", "nobody"} : Words();
  const auto submit = [&](const std::string& verb, const std::string& text) {
    Words words = {verb};
    words.insert(words.end(), who.begin(), who.end());
    words.insert(words.end(), {"--chdir", "/", "--", "sh", "-c", text});
    return schedule(words);
  };
  const ProcessResult ran = submit("run", "echo $FF_TASK_DIR");
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_NE(ran.out.find('/'), std::string::npos) << ran.out;
  // One that runs is ended by `down`, and goes on afterwards.
  const std::string flag = dir_ / "flag";
  const ProcessResult more = submit("submit", "until [ -e " + flag + " ]; do sleep 0.1; done");
  ASSERT_EQ(more.exit, 0) << more.err;
  const auto state = [&] {
    const json task = data_of(schedule({"show", "2", "--json"}));
    return task.value("state", "");
  };
  until("it runs", [&] { return state() == "running"; });
  const ProcessResult down = run_ff({"down", "--dir", folder_});
  EXPECT_EQ(down.exit, 0) << down.err;
  EXPECT_EQ(processes(), std::set<pid_t>());
  write_file(flag, "");
  ASSERT_EQ(up({"--schedule"}).exit, 0);
  until("it has ended", [&] { return state() == "succeeded"; });
  const json task = data_of(schedule({"show", "2", "--json"}));
  EXPECT_EQ(task["attempts_made"], 2);
  EXPECT_EQ(task["failures"], 0);
  EXPECT_EQ(run_ff({"down", "--dir", folder_, "--purge"}).exit, 0);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(UpTest, ATokenHoldsAtItsSchedulerUntilItIsWithdrawn) {
  const ProcessResult first = up({"--schedule"});
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  const std::string token = dir_ / "token";
  const auto ann = [&](Words words) {
    words.insert(words.begin(), "schedule");
    return run_ff(std::move(words),
                  {{"FF_SCHEDULER", told["scheduler"]}, {"FF_TOKEN_FILE", token}});
  };
  // Nobody asks for long: one that was made a moment ago holds.
  const auto none = run_ff({"schedule", "list"}, {{"FF_SCHEDULER", told["scheduler"]}});
  EXPECT_EQ(none.exit, 5) << none.err;
  ASSERT_EQ(ff(told, {"admin", "user", "add", "ann", "--uid", "61234", "--token-file", token}).exit,
            0);
  const ProcessResult submitted = ann({"submit", "--chdir", "/", "--", "true"});
  EXPECT_EQ(submitted.exit, 0) << submitted.err;
  EXPECT_EQ(ann({"show", "1"}).exit, 0);
  ASSERT_EQ(ff(told, {"admin", "user", "remove", "ann"}).exit, 0);
  ProcessResult ran;
  until("the token does not hold any more", [&] {
    ran = ann({"list"});
    return ran.exit != 0;
  });
  EXPECT_EQ(ran.exit, 5) << ran.err;
  // By the list of valid tokens, or already by the list of revoked keys.
  EXPECT_NE(ran.err.find(" is revoked"), std::string::npos) << ran.err;
  for (const Words& words : {Words{"submit", "--chdir", "/", "--", "true"}, Words{"stop", "1"},
                             Words{"nodes"}, Words{"logs", "1"}}) {
    EXPECT_EQ(ann(words).exit, 5) << words[0];
  }
  const Words other = {"admin", "user",  "add",          "bob",
                       "--uid", "61235", "--token-file", dir_ / "bob"};
  ASSERT_EQ(ff(told, other).exit, 0);
  const ProcessResult bob = run_ff(
      {"schedule", "list"}, {{"FF_SCHEDULER", told["scheduler"]}, {"FF_TOKEN_FILE", dir_ / "bob"}});
  EXPECT_EQ(bob.exit, 0) << bob.err;
}

// What redis-cli and s3cmd print with the key that `up` has made.
class UpKvTest : public UpTest {
 protected:
  ProcessResult redis(const json& told, Words words, bool with_key = true) {
    const std::string address = told["redis"];
    words.insert(words.begin(),
                 {"redis-cli", "-p", address.substr(address.rfind(':') + 1), "--no-auth-warning"});
    if (!with_key) return run({.argv = words});
    return run({.argv = words, .env = {{"REDISCLI_AUTH", read_file(told["kv_key"])}}});
  }
  ProcessResult s3(const json& told, Words words) {
    const json keys = data_of(run_ff({"admin", "user", "s3-key", told["kv_key"], "--json"}));
    const std::string host = std::string(told["s3"]).substr(std::string("http://").size());
    const Words first = {"s3cmd",
                         "--config=/dev/null",
                         "--no-ssl",
                         "--host=" + host,
                         "--host-bucket=" + host,
                         "--access_key=" + std::string(keys["access_key"]),
                         "--secret_key=" + std::string(keys["secret_key"])};
    words.insert(words.begin(), first.begin(), first.end());
    return run({.argv = words});
  }
};

TEST_F(UpKvTest, AGatewayComesAndGoesWithItAndKeepsItsData) {
  if (run({.argv = {"redis-cli", "--version"}}).exit != 0 ||
      run({.argv = {"s3cmd", "--version"}}).exit != 0) {
    GTEST_SKIP() << "redis-cli and s3cmd are not installed";
  }
  const ProcessResult first = up({"--storage", "1", "--kv"});
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  const json told = data_of(first);
  EXPECT_EQ(told["daemons"].size(), 3u);
  EXPECT_EQ(fs::status(std::string(told["kv_key"])).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(redis(told, {"SET", "greeting", "hello"}).out, "OK\n");
  EXPECT_TRUE(has(redis(told, {"GET", "greeting"}, false).out, "NOAUTH"));
  EXPECT_EQ(s3(told, {"mb", "s3://bucket"}).exit, 0);
  const ProcessResult put = s3(told, {"put", dir_ / "file", "s3://bucket/a/file"});
  EXPECT_EQ(put.exit, 0) << put.err;
  const std::string to = dir_ / "back";
  EXPECT_EQ(ff(told, {"fs", "cp", "ff:///objects/bucket/a/file", to}).exit, 0);
  EXPECT_TRUE(read_file(to) == bytes_);
  const std::string shown = run_ff({"up", "--dir", folder_, "--kv"}).out;
  EXPECT_TRUE(has(shown, "redis-cli -p ")) << shown;
  EXPECT_TRUE(has(shown, "aws --endpoint-url " + std::string(told["s3"]) + " s3 ls")) << shown;

  // One that ends is started again; it gives its partitions back, so that nobody waits for a lease.
  ASSERT_EQ(::kill(pid_of(told, "kv"), SIGTERM), 0);
  until("there is a gateway again, which serves the key", [&] {
    return redis(told, {"GET", "greeting"}).out == "hello\n";
  });

  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  EXPECT_EQ(processes(), std::set<pid_t>());
  ASSERT_EQ(up().exit, 0);
  const ProcessResult late = up({"--kv"});
  EXPECT_EQ(late.exit, 5) << late.err;
  EXPECT_TRUE(has(late.out, "it is already running, without a gateway")) << late.out;
  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  const ProcessResult again = up({"--kv"});
  ASSERT_EQ(again.exit, 0) << again.out << again.err;
  EXPECT_EQ(data_of(again)["redis"], told["redis"]);
  EXPECT_EQ(data_of(again)["s3"], told["s3"]);
  EXPECT_EQ(redis(data_of(again), {"GET", "greeting"}).out, "hello\n");
  EXPECT_EQ(s3(data_of(again), {"get", "s3://bucket/a/file", dir_ / "again"}).exit, 0);
  EXPECT_TRUE(read_file(dir_ / "again") == bytes_);
  EXPECT_EQ(run_ff({"down", "--dir", folder_, "--purge"}).exit, 0);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(UpTest, AMountComesAndGoesWithIt) {
  const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fuse < 0) GTEST_SKIP() << "/dev/fuse cannot be opened here";
  ::close(fuse);
  const std::string at = dir_ / "mnt";
  const ProcessResult first = up({"--mount", at});
  ASSERT_EQ(first.exit, 0) << first.out << first.err;
  fs::copy_file(dir_ / "file", at + "/file");
  compare_out(data_of(first));
  EXPECT_EQ(up({"--mount", at}).exit, 0);
  EXPECT_EQ(up({"--mount", dir_ / "elsewhere"}).exit, 5);
  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  EXPECT_TRUE(fs::is_empty(at));

  // What a killed one leaves there is replaced, or taken away.
  const ProcessResult second = up({"--mount", at});
  ASSERT_EQ(second.exit, 0) << second.out << second.err;
  EXPECT_TRUE(read_file(at + "/file") == bytes_);
  ASSERT_EQ(::kill(data_of(second)["supervisor"], SIGKILL), 0);
  const ProcessResult third = up({"--mount", at});
  ASSERT_EQ(third.exit, 0) << third.out << third.err;
  EXPECT_TRUE(read_file(at + "/file") == bytes_);
  ASSERT_EQ(::kill(data_of(third)["supervisor"], SIGKILL), 0);
  ASSERT_EQ(run_ff({"down", "--dir", folder_}).exit, 0);
  EXPECT_TRUE(fs::is_empty(at));
}

}  // namespace
}  // namespace ff::test
