// Operations on open directories of the machine, shared by SystemDisk and BeneathDisk. Errors name
// the given path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// Sorted; without "." and "..".
Result<std::vector<DirEntry>> list_open_dir(Fd dir, const std::string& path);
Result<void> sync_open_dir(int dir, const std::string& path);
// Disk::set_mtime() for `name` in the directory; AT_FDCWD: the working directory.
Result<void> set_mtime_at(int dir, const std::string& name, int64_t mtime_ns,
                          const std::string& path);

}  // namespace ff::io
