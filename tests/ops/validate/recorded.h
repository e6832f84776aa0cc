// Recorded machines, one text file each, tests/ops/validate/trees/*.txt: what their kernels show in
// /proc, /sys and logs. A test puts one on a disk in memory, breaks a part of it, and runs one
// check.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/io/disk.h"

namespace ff::validate {

// Creates or changes files below `root` as described by the text. Aborts on a syntax error.
void lay_out(io::Disk& disk, const std::string& root, std::string_view text);

// The text of tests/ops/validate/trees/NAME.txt.
std::string recorded(const std::string& name);

}  // namespace ff::validate
