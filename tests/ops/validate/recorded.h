// Machines in a text file each, tests/ops/validate/trees/*.txt: what their kernels show in /proc,
// /sys and logs. A test puts one on a disk in memory, breaks a part of it, and runs one check on
// that.
//
//   # a remark
//   /proc/sys/kernel/tainted = 0             a file with one line; missing folders are made
//   /proc/meminfo                            a file with the indented lines that follow
//       MemTotal:       527868160 kB
//   /proc/cpuinfo +=                         the same, behind what is there
//   /sys/…/raw = hex 11 5c "DIMM_A1" 00*2    bytes
//   /sys/class/net/eth0 -> ../../devices/…   a symbolic link
//   /sys/class/nvme/                         an empty folder
//   - /sys/class/net/eth0                    gone, with everything below
//   for 0-31 64 0x40/node1                   once for each: @ is the word, @1 and @2 its parts
//   end
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/io/disk.h"

namespace ff::validate {

// Makes or changes files below `root` as the text says. A mistake in the text ends the program.
void lay_out(io::Disk& disk, const std::string& root, std::string_view text);

// The text of tests/ops/validate/trees/NAME.txt.
std::string recorded(const std::string& name);

}  // namespace ff::validate
