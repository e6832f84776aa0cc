// `ff allreduce` on several hosts: started over ssh, or as torchrun starts it, with keys and
// without, and what a user hears when something is wrong.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "e2e/hosts.h"

namespace ff::cmd {
namespace {

using Json = nlohmann::json;

constexpr size_t kHosts = 3;

class AllreduceHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.available()) GTEST_SKIP() << "network namespaces cannot be made here";
    // What stands in for ssh: a line on the host of an address.
    std::string script = "#!/bin/sh\ncase \"$1\" in\n";
    for (size_t host = 0; host < kHosts; host++) {
      const test::Launch launch = hosts_.on(host, {});
      script += hosts_.address(host) + ") set --";
      for (const std::string& word : launch.argv) script += " " + word;
      script += " sh -c \"$2\";;\n";
    }
    script += "*) echo \"$1: no such host\" >&2; exit 255;;\nesac\nexec \"$@\"\n";
    test::write_file(dir_ / "rsh", script);
    ::chmod((dir_ / "rsh").c_str(), 0755);
  }
  std::string list() const {
    std::string all;
    for (size_t host = 0; host < kHosts; host++) {
      all += (host > 0 ? "," : "") + hosts_.address(host);
    }
    return all;
  }
  test::Launch bench(const std::string& hosts, std::vector<std::string> more) const {
    test::Launch launch{.argv = {FF_BINARY, "allreduce", "bench", "--hosts", hosts, "--ssh",
                                 dir_ / "rsh", "-b", "1K", "-e", "1M", "-f", "32", "-n", "2"}};
    launch.argv.insert(launch.argv.end(), more.begin(), more.end());
    return launch;
  }
  // As torchrun would start one rank for each host.
  test::Launch part(size_t host, const std::string& key) const {
    test::Launch launch = hosts_.on(
        host, {FF_BINARY, "allreduce", "bench", "-b", "64K", "-e", "64K", "-n", "2", "--json"});
    launch.env = {{"RANK", std::to_string(host)},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", "0"},
                  {"LOCAL_WORLD_SIZE", "1"},
                  {"MASTER_ADDR", hosts_.address(0)},
                  {"MASTER_PORT", "29500"}};
    if (!key.empty()) launch.env["FF_KEY_FILE"] = key;
    return launch;
  }

  // The process of rank 2, or 0.
  pid_t last_rank() const {
    for (const pid_t pid : test::processes("allreduce")) {
      const std::string folder = "/proc/" + std::to_string(pid);
      const std::string variables = test::read_file(folder + "/environ");
      const bool is_last = variables.find("RANK=2") != std::string::npos &&
                           variables.find("MASTER_ADDR=" + hosts_.address(0)) != std::string::npos;
      if (is_last && test::read_file(folder + "/comm") == "ff\n") return pid;
    }
    return 0;
  }

  test::Hosts hosts_{kHosts};
  test::TempDir dir_;
};

TEST_F(AllreduceHostsTest, BenchIsRightOnAllOfThem) {
  for (const auto& more : std::vector<std::vector<std::string>>{
           {"--nproc", "2"},
           {"--nproc", "1", "--algo", "ring", "-d", "bfloat16"},
           {"--nproc", "2", "--deterministic", "--collective", "reduce_scatter"},
           {"--nproc", "1", "--wire", "fp8", "--collective", "reduce", "-r", "2"}}) {
    auto words = more;
    words.emplace_back("--json");
    const test::ProcessResult ran = test::run(bench(list(), words));
    ASSERT_EQ(ran.exit, 0) << ran.out << ran.err;
    const Json data = Json::parse(ran.out)["data"];
    EXPECT_EQ(data["wrong"], 0) << ran.out;
    EXPECT_EQ(data["rows"].size(), 3u);
  }
  const test::ProcessResult zones =
      test::run(bench(hosts_.address(0) + "," + hosts_.address(1) + "/" + hosts_.address(2),
                      {"--nproc=1", "--wire", "bf16"}));
  ASSERT_EQ(zones.exit, 0) << zones.err;
  EXPECT_NE(zones.out.find("# Using 3 processes on 3 nodes"), std::string::npos) << zones.out;
  EXPECT_NE(zones.out.find("# Wire error           : worst"), std::string::npos) << zones.out;
  EXPECT_NE(zones.out.find("# Out of bounds values : 0 OK"), std::string::npos) << zones.out;
}

TEST_F(AllreduceHostsTest, PartsMeetWithAKeyAlone) {
  test::write_file(dir_ / "key", std::string(64, 'a') + "\n");
  ::chmod((dir_ / "key").c_str(), 0600);
  {
    test::Child other(part(1, dir_ / "key"));
    const test::ProcessResult first = test::run(part(0, dir_ / "key"));
    ASSERT_EQ(first.exit, 0) << first.out << first.err;
    EXPECT_EQ(Json::parse(first.out)["data"]["wrong"], 0);
    EXPECT_EQ(other.finish(), 0) << other.err;
  }
  const test::ProcessResult keyless = test::run(part(0, ""));
  EXPECT_EQ(keyless.exit, 5) << keyless.out;
  EXPECT_NE(keyless.out.find("this job has no key"), std::string::npos) << keyless.out;
}

TEST_F(AllreduceHostsTest, OneThatIsKilledIsNamedByAll) {
  test::Child child(bench(list(), {"--nproc", "1", "-b", "8M", "-e", "8M", "-n", "1000000"}));
  ASSERT_TRUE(child.wait_for_out("# Using 3 processes")) << child.err;
  const pid_t victim = last_rank();
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(child.finish(), 1) << child.err;
  EXPECT_NE(child.err.find("rank 2 (process " + std::to_string(victim)), std::string::npos)
      << child.err;
}

TEST_F(AllreduceHostsTest, WithoutAHostTheOthersGoOn) {
  test::Child child(bench(list(), {"--nproc", "1", "-b", "64K", "-e", "1M", "-f", "2", "-n", "50",
                                   "--on-failure", "shrink"}));
  ASSERT_TRUE(child.wait_for_out("#wrong")) << child.err;
  const pid_t victim = last_rank();
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(child.finish(), 0) << child.err;
  EXPECT_NE(child.out.find(": 2 ranks go on\n"), std::string::npos) << child.out;
  EXPECT_NE(child.out.find("# Out of bounds values : 0 OK"), std::string::npos) << child.out;
}

TEST_F(AllreduceHostsTest, NothingIsLeftWhenItIsInterrupted) {
  test::Child child(bench(list(), {"--nproc", "2", "-b", "8M", "-e", "8M", "-n", "1000000"}));
  ASSERT_TRUE(child.wait_for_out("# Using 6 processes")) << child.err;
  ::kill(child.pid(), SIGINT);
  EXPECT_EQ(child.finish(), 130) << child.err;
  EXPECT_TRUE(test::eventually([this] { return test::processes(hosts_.address(2)).empty(); }));
}

TEST_F(AllreduceHostsTest, WhatIsWrongIsNamed) {
  const auto says = [&](const test::Launch& launch, int exit, const std::string& text) {
    const test::ProcessResult ran = test::run(launch);
    EXPECT_EQ(ran.exit, exit) << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << ran.err;
  };
  says(bench("one,,two", {}), 2, "'' is not a host name");
  says(bench("one,-oProxy", {}), 2, "'-oProxy' is not a host name");
  says(bench("one,one", {}), 2, "one is given twice");
  says(bench(list() + ",198.18.99.99", {"--nproc", "1", "--timeout", "60s"}), 1, "198.18.99.99: ");
  says(bench(list(), {"--nproc", "0"}), 2, "--nproc 0");
  says(bench(list(), {"--deterministic", "--algo", "ring"}), 2, "exclude each other");
  says(bench(list(), {"--nproc", "1", "--root", "3"}), 2, "--root 3");
  says(bench(list(), {"--nproc", "1", "--ssh", "/nowhere/ssh"}), 1, "/nowhere/ssh");
}

}  // namespace
}  // namespace ff::cmd
