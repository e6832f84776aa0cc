// The files of a shim: they are read back as written, and malformed ones are rejected by name.
#include "ops/shim/launch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include "ops/shim/records.h"
#include "ops/shim/spawn.h"
#include "platform/io/test_bytes.h"

namespace ff::shim {
namespace {

LaunchSpec sample() {
  LaunchSpec launch;
  launch.argv = {"train", "a b", "\"'\\", "new\nline", "\xff\xfe not text", ""};
  launch.env = {"PATH=/bin", "EMPTY=", "X=a=b"};
  launch.cwd = "/home/u";
  launch.user = RankUser{1000, 1001, {44, 4294967294}};
  launch.memory_limit = uint64_t{1} << 40;
  launch.cgroup = "ff/tasks";
  launch.log = {.path = "/log/0", .file_bytes = 1 << 20, .files = 7, .rate = 0, .burst = 5};
  launch.stop_signal = SIGUSR1;
  launch.marker = "FF_ATTEMPT=12.1.0";
  return launch;
}

TEST(LaunchSpec, IsReadAsItWasWritten) {
  const auto read = parse_launch(to_json(sample()));
  ASSERT_TRUE(io::ok(read));
  EXPECT_EQ(read->argv, sample().argv);
  EXPECT_EQ(read->env, sample().env);
  EXPECT_EQ(read->cwd, "/home/u");
  ASSERT_TRUE(read->user.has_value());
  EXPECT_EQ(read->user->uid, 1000u);
  EXPECT_EQ(read->user->gid, 1001u);
  EXPECT_EQ(read->user->groups, (std::vector<uint32_t>{44, 4294967294}));
  EXPECT_EQ(read->memory_limit, uint64_t{1} << 40);
  EXPECT_EQ(read->cgroup, "ff/tasks");
  EXPECT_EQ(read->log.path, "/log/0");
  EXPECT_EQ(read->log.files, 7u);
  EXPECT_EQ(read->stop_signal, SIGUSR1);
  EXPECT_EQ(read->marker, "FF_ATTEMPT=12.1.0");
  EXPECT_EQ(to_json(*read), to_json(sample()));
}

TEST(LaunchSpec, HasDefaults) {
  LaunchSpec launch;
  launch.argv = {"true"};
  launch.log.path = "/log";
  const auto read = parse_launch(to_json(launch));
  ASSERT_TRUE(io::ok(read));
  EXPECT_FALSE(read->user.has_value());
  EXPECT_EQ(read->log.file_bytes, 2 * kMiB);
  EXPECT_EQ(read->log.files, 4u);
  EXPECT_EQ(read->stop_signal, 0);
}

// The text of sample() with one malformed field.
std::string with(const char* field, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(to_json(sample()));
  json[nlohmann::json::json_pointer(field)] = value;
  return json.dump();
}

TEST(LaunchSpec, WhatIsWrongIsNamed) {
  const struct {
    const char* field;
    nlohmann::json value;
    const char* said;
  } kWrong[] = {
      {"/argv", nlohmann::json::array(), "argv"},
      {"/argv", "true", "argv"},
      {"/argv", {""}, "argv"},
      {"/argv", {"a", std::string("b\0c", 3)}, "argv"},
      {"/argv", {"a", 1}, "argv"},
      {"/argv/1", {{"hex", "4"}}, "argv"},
      {"/argv/1", {{"hex", "4G"}}, "argv"},
      {"/argv/1", {{"hex", "00"}}, "argv"},
      {"/env/0", "PATH", "env"},
      {"/env/0", "=x", "env"},
      {"/cwd", "home", "cwd"},
      {"/user/uid", -1, "uid"},
      {"/user/uid", 4294967295, "uid"},
      {"/user/gid", 1.5, "gid"},
      {"/user/groups/0", 4294967295, "groups"},
      {"/user", nullptr, "user"},
      {"/memory_limit", "1G", "memory_limit"},
      {"/cgroup", "ff/../..", "cgroup"},
      {"/log/path", "log", "path"},
      {"/log/files", 0, "files"},
      {"/log/files", 1e9, "files"},
      {"/log/file_bytes", 10, "file_bytes"},
      {"/log/rate", 1, "burst"},
      {"/stop_signal", "NONE", "stop_signal"},
      {"/marker", "x", "marker"},
  };
  for (const auto& wrong : kWrong) {
    const auto read = parse_launch(with(wrong.field, wrong.value));
    ASSERT_FALSE(read.ok()) << wrong.field << " " << wrong.value;
    EXPECT_EQ(read.error().code, Errc::corrupt) << wrong.field;
    EXPECT_NE(read.error().message.find(wrong.said), std::string::npos) << read.error().message;
  }
  for (const char* const text : {"", "[]", "1", "{}", "{\"ff_shim\": 1}"}) {
    EXPECT_EQ(io::code_of(parse_launch(text)), Errc::corrupt) << text;
  }
  EXPECT_EQ(io::code_of(parse_launch(with("/ff_shim", 2))), Errc::newer_format);
}

TEST(LaunchSpec, SignalsByName) {
  EXPECT_EQ(signal_number("USR1"), SIGUSR1);
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number(""), std::nullopt);
  EXPECT_EQ(signal_number("usr1"), std::nullopt);
}

TEST(LaunchSpec, ProgramsAreLookedForInTheirOwnPath) {
  EXPECT_EQ(path_candidates("/bin/x", {"PATH=/a"}), (std::vector<std::string>{"/bin/x"}));
  EXPECT_EQ(path_candidates("./x", {"PATH=/a"}), (std::vector<std::string>{"./x"}));
  EXPECT_EQ(path_candidates("x", {"APATH=/b", "PATH=/a:/b"}),
            (std::vector<std::string>{"/a/x", "/b/x"}));
  EXPECT_EQ(path_candidates("x", {"PATH=/a:"}), (std::vector<std::string>{"/a/x", "./x"}));
  EXPECT_FALSE(path_candidates("x", {}).empty());
}

TEST(Records, AreReadAsTheyWereWritten) {
  const RunningRecord running{.shim = {7, 70},
                              .rank = {8, UINT64_MAX},
                              .boot = "abc",
                              .cgroup_kind = CgroupKind::v1,
                              .cgroup = "/sys/fs/cgroup/memory/x",
                              .no_cgroup = "why",
                              .marker = "A=b",
                              .began_ns = 5};
  const auto read = parse_running(to_json(running));
  ASSERT_TRUE(io::ok(read));
  EXPECT_EQ(*read, running);
  ExitRecord exit{.kind = ExitKind::lost,
                  .status = 0x8009,
                  .why = "its shim was killed",
                  .ended_ns = 1,
                  .gone_ns = 2,
                  .killed = 3,
                  .log_dropped = 4};
  auto read_exit = parse_exit(to_json(exit));
  ASSERT_TRUE(io::ok(read_exit));
  EXPECT_EQ(*read_exit, exit);
  exit.peak_memory = 5;
  exit.peak_of_cgroup = true;
  exit.oom_killed = false;
  read_exit = parse_exit(to_json(exit));
  ASSERT_TRUE(io::ok(read_exit));
  EXPECT_EQ(*read_exit, exit);
}

TEST(Records, NoProcessIsNumberZero) {
  auto json = nlohmann::json::parse(to_json(RunningRecord{.shim = {1, 1}, .rank = {2, 2}}));
  json["rank"]["pid"] = 0;
  EXPECT_EQ(io::code_of(parse_running(json.dump())), Errc::corrupt);
  json["rank"]["pid"] = uint64_t{1} << 31;
  EXPECT_EQ(io::code_of(parse_running(json.dump())), Errc::corrupt);
}

}  // namespace
}  // namespace ff::shim
