// The files of a shim's folder and the kernel's texts that it reads: no crash; what is read can be
// written and is read as the same again, and a launch that is taken can be given to execve().
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/shim/cgroup.h"
#include "ops/shim/launch.h"
#include "ops/shim/process_table.h"
#include "ops/shim/rank_lease.h"
#include "ops/shim/rank_log.h"
#include "ops/shim/records.h"
#include "platform/base/check.h"

using namespace ff;
using namespace ff::shim;

std::vector<std::string> fuzz_seeds() {
  LaunchSpec launch;
  launch.argv = {"train", "two\nlines", "\xff"};
  launch.env = {"PATH=/bin"};
  launch.user = RankUser{1000, 1000, {44}};
  launch.cgroup = "ff/tasks";
  launch.log.path = "/log/0";
  launch.stop_signal = 10;
  launch.marker = "FF_TASK_RANK=1.1.0";
  const RunningRecord running{.shim = {7, 70}, .rank = {8, 80}, .boot = "x", .marker = "A=b"};
  const ExitRecord exit{.status = 256, .peak_memory = 1, .oom_killed = true};
  return {to_json(launch),
          to_json(running),
          to_json(exit),
          lease_text({.boot = "b", .renewed_ns = 5, .lease_ns = 600 * kSecond}),
          "72 (a) b) S 71 72 72 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 9036 8192 100 1 1\n",
          "27 25 0:24 / /sys/fs/cgroup/a\\040b rw shared:9 - cgroup cgroup rw,memory\n",
          "2026-11-23T14:03:39.123456+00:00 text"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto launch = parse_launch(input)) {
    FF_CHECK(!launch->argv.empty() && launch->log.files > 0);
    for (const std::string& word : launch->argv) FF_CHECK(word.find('\0') == word.npos);
    const std::string text = to_json(*launch);
    const auto again = parse_launch(text);
    FF_CHECK(again.ok() && to_json(*again) == text);
  }
  if (const auto running = parse_running(input)) {
    FF_CHECK(running->shim.pid > 0 && running->rank.pid > 0);
    const auto again = parse_running(to_json(*running));
    FF_CHECK(again.ok() && *again == *running);
  }
  if (const auto exit = parse_exit(input)) {
    const auto again = parse_exit(to_json(*exit));
    FF_CHECK(again.ok() && *again == *exit);
  }
  if (const auto lease = parse_lease(input, "b")) {
    FF_CHECK(lease->until_ns() >= lease->renewed_ns);
    FF_CHECK(parse_lease(lease_text(*lease), "b") == *lease);
  }
  if (const auto process = parse_stat(input)) FF_CHECK(process->id.pid > 0);
  for (const Hierarchy& one : parse_mountinfo(input)) FF_CHECK(one.kind != CgroupKind::none);
  if (const auto line = parse_rank_log_line(input)) FF_CHECK(line->text.size() < size);
  return 0;
}
