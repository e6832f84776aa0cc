// Reads the kernel log from its sources: /dev/kmsg of the running system, or a saved log (dmesg,
// kern.log, journalctl -k in any of its short forms).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::validate {

struct KernelLogLine {
  std::optional<int64_t> wall_ns = {};  // none: no time, or only time since boot
  std::optional<int64_t> boot_ns = {};  // time since boot (dmesg, /dev/kmsg)
  // Without timestamp, host and "kernel:"; empty if another program wrote the line.
  std::string text = {};
  bool has_time() const { return wall_ns || boot_ns; }
};

// Parses one line of a saved log, in any of these forms:
//   [12345.678901] text                                dmesg
//   <4>[12345.678901] text                             dmesg -r
//   kern  :err   : [12345.678901] text                 dmesg -x
//   [Mon Nov 23 01:02:03 2026] text                    dmesg -T
//   2026-11-23T01:02:03,456789+00:00 text              dmesg --time-format iso
//   2026-11-23T01:02:03.456789+00:00 host kernel: …    kern.log, journalctl -o short-iso-precise
//   Nov 23 01:02:03 host kernel: [12345.678901] text   kern.log, journalctl
//   Mon 2026-11-23 01:02:03 UTC host kernel: text      journalctl -o short-full
//   1795435200.123456 host kernel: text                journalctl -o short-unix
//   [12345.678901] host kernel: text                   journalctl -o short-monotonic
//   4,1234,5678901234,-;text                           cat /dev/kmsg
// A missing year is chosen so that the line is at most a day after `now_ns`.
KernelLogLine parse_kernel_log_line(std::string_view line, int64_t now_ns);

// Parses one record of /dev/kmsg: "4,1234,5678901234,-;text", then lines of a dictionary
// (Documentation/ABI/testing/dev-kmsg). Nothing: malformed, or not from the kernel.
std::optional<KernelLogLine> parse_kmsg(std::string_view record);

// If a line has no time and begins with a space, as the second line of a message with several does,
// it gets the time of the line before it, and is dropped if another program wrote that one.
class ContinuationLines {
 public:
  void join(KernelLogLine& line);

 private:
  KernelLogLine before_;
};

// Reads a saved log of any size line by line. Errors: those of the file.
Result<void> read_log(io::Disk& disk, const std::string& path, int64_t now_ns,
                      const std::function<void(KernelLogLine)>& each);

}  // namespace ff::validate
