// Lines of the kernel's log, from where they are kept: /dev/kmsg of the running system, a saved log
// (dmesg, kern.log, journalctl -k in any of its short forms), so that one reader serves all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::validate {

struct LogLine {
  std::optional<int64_t> wall_ns = {};  // none: the line does not say, or only since the boot
  std::optional<int64_t> boot_ns = {};  // since the boot, of dmesg and /dev/kmsg
  // Without time stamps, host and "kernel:"; empty where another program wrote it.
  std::string text = {};
  bool has_time() const { return wall_ns || boot_ns; }
};

// One line of a saved log, whatever wrote it:
//   [12345.678901] text                                dmesg
//   <4>[12345.678901] text                             dmesg -r
//   [Mon Nov 23 01:02:03 2026] text                    dmesg -T
//   2026-11-23T01:02:03,456789+00:00 text              dmesg --time-format iso
//   2026-11-23T01:02:03.456789+00:00 host kernel: …    kern.log, journalctl -o short-iso-precise
//   Nov 23 01:02:03 host kernel: [12345.678901] text   kern.log, journalctl
// A year that is not said is the one that puts the line at most a day after `now_ns`.
LogLine parse_log_line(std::string_view line, int64_t now_ns);

// One record of /dev/kmsg: "4,1234,5678901234,-;text" and lines of a dictionary behind it
// (Documentation/ABI/testing/dev-kmsg). Nothing: it is none, or not the kernel's own.
std::optional<LogLine> parse_kmsg(std::string_view record);

// Reads a saved log line by line, of any size. Errors: those of the file.
Result<void> read_log(io::Disk& disk, const std::string& path, int64_t now_ns,
                      const std::function<void(LogLine)>& each);

}  // namespace ff::validate
