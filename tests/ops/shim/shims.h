// Real shims in temporary folders, with shell scripts as ranks. Processes that a test leaves behind
// are killed at its end, by the shims or in their place.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "ops/shim/control.h"
#include "ops/shim/launch.h"
#include "ops/shim/rank_log.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::shim {

using Words = std::vector<std::string>;

constexpr int64_t kPatienceNs = 120 * kSecond;
constexpr int64_t kLookAgainNs = 5 * kMillisecond;

class ShimTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& dir : dirs_) {
      (void)send_order(disk_, dir, ShimOrder::kill);
      until([&] {
        const auto state = read_state(disk_, dir);
        if (state && state->phase == ShimPhase::lost)
          return kill_lost_rank(disk_, clock_, dir).ok();
        return !state || state->phase != ShimPhase::running;
      });
    }
    if (!mounted_.empty()) ::umount2(mounted_.c_str(), MNT_DETACH);
  }

  LaunchSpec launch(Words argv) const {
    static std::atomic<int> number = 0;
    LaunchSpec launch;
    launch.argv = std::move(argv);
    launch.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "DIR=" + dir_.path()};
    launch.log.path = dir_ / "rank.log";
    launch.marker = fmt::format("FF_ATTEMPT=test.{}.{}", ::getpid(), number++);
    return launch;
  }
  LaunchSpec script(const std::string& text) const { return launch({"/bin/sh", "-c", text}); }

  // The folder of a shim, with its launch.json.
  std::string prepare(const LaunchSpec& launch, const std::string& name = "shim") {
    const std::string dir = dir_ / name;
    EXPECT_TRUE(io::ok(disk_.make_dir(dir, 0700)));
    EXPECT_TRUE(io::ok(io::put(disk_, dir + "/" + kLaunchFile, to_json(launch))));
    return dir;
  }
  std::string begin(const LaunchSpec& launch, const std::string& name = "shim") {
    const std::string dir = prepare(launch, name);
    start(dir);
    return dir;
  }
  void start(const std::string& dir) {
    dirs_.push_back(dir);
    ASSERT_TRUE(io::ok(start_shim({FF_SHIM_PROGRAM}, dir)));
  }

  void until(const std::function<bool()>& condition) {
    const int64_t end_ns = clock_.steady_ns() + kPatienceNs;
    while (!condition() && clock_.steady_ns() < end_ns) clock_.sleep_ns(kLookAgainNs);
    ASSERT_TRUE(condition());
  }
  ShimState state(const std::string& dir) {
    const auto state = read_state(disk_, dir);
    EXPECT_TRUE(io::ok(state));
    return state ? *state : ShimState();
  }
  void until_phase(const std::string& dir, ShimPhase phase) {
    until([&] { return state(dir).phase == phase; });
  }
  ExitRecord end_of(const std::string& dir) {
    until_phase(dir, ShimPhase::exited);
    return state(dir).exit.value_or(ExitRecord());
  }
  RunningRecord running(const std::string& dir) {
    until([&] { return state(dir).running.has_value(); });
    return state(dir).running.value_or(RunningRecord());
  }
  ExitRecord run(const LaunchSpec& launch) { return end_of(begin(launch)); }

  // The output of the rank, from the newest log file.
  std::string printed() {
    std::string text;
    const auto log = io::read_file(disk_, dir_ / "rank.log", kMiB);
    if (!log) return text;  // not yet
    for (const RankLogLine& line : lines_of(log->substr(0, log->rfind('\n') + 1))) {
      if (line.own) continue;
      if (line.continues && text.ends_with('\n')) text.pop_back();
      text += line.text;
      text += '\n';
    }
    return text;
  }
  // All lines, each of which must parse.
  static std::vector<RankLogLine> lines_of(const std::string& text) {
    static std::vector<std::string> kept;  // backs the views
    kept.push_back(text);
    std::vector<RankLogLine> lines;
    for (const std::string_view line : split(kept.back(), '\n')) {
      if (line.empty()) continue;
      const auto read = parse_rank_log_line(line);
      EXPECT_TRUE(read.has_value()) << line;
      if (read) lines.push_back(*read);
    }
    return lines;
  }
  bool there(const std::string& name) { return io::exists(disk_, dir_ / name).value(); }
  void touch(const std::string& name) { EXPECT_TRUE(io::ok(io::put(disk_, dir_ / name, ""))); }
  // The pid in a file, once the file exists.
  ProcessId process_in(const std::string& name) {
    until([&] { return io::get(disk_, dir_ / name).ends_with('\n'); });
    const std::string text = io::get(disk_, dir_ / name);
    const auto pid = parse_u64(std::string_view(text).substr(0, text.find('\n')));
    const auto found = find_process(disk_, static_cast<pid_t>(pid.value_or(0)));
    return found ? found->id : ProcessId();
  }
  // The exit status of a program, and its standard error.
  int run_program(const Words& words, std::string* said = nullptr) {
    const std::string file = dir_ / "said";
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, file.c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), ::environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (said != nullptr) *said = io::get(disk_, file);
    return status;
  }
  // A file system of 1 MiB; empty: mounting is not possible here.
  std::string mount_small() {
    const std::string small = dir_ / "small";
    EXPECT_TRUE(io::ok(disk_.make_dir(small, 0700)));
    if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") == 0) mounted_ = small;
    return mounted_;
  }
  // Processes that still have the marker.
  size_t marked(const LaunchSpec& launch) {
    size_t count = 0;
    const auto all = all_processes(disk_);
    EXPECT_TRUE(io::ok(all));
    for (const ProcessInfo& one : *all) {
      if (!one.is_zombie && has_variable(disk_, one.id.pid, launch.marker)) count++;
    }
    return count;
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  std::vector<std::string> dirs_;
  std::string mounted_;
};

inline bool exited_with(const ExitRecord& exit, int code) {
  return exit.kind == ExitKind::exited && WIFEXITED(exit.status) &&
         WEXITSTATUS(exit.status) == code;
}
inline bool killed_by(const ExitRecord& exit, int number) {
  return exit.kind == ExitKind::exited && WIFSIGNALED(exit.status) &&
         WTERMSIG(exit.status) == number;
}

}  // namespace ff::shim
