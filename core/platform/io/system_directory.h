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
// The Result of a system call that returns 0 or -1 with errno.
Result<void> outcome(int returned, const std::string& path);
// "FROM -> TO", for the errors of calls with two paths.
std::string both(const std::string& from, const std::string& to);
// Disk::info() and Disk::read_symlink() for `name` in the directory; AT_FDCWD: the working
// directory.
Result<FileInfo> info_at(int dir, const std::string& name, const std::string& path);
Result<std::string> read_symlink_at(int dir, const std::string& name, const std::string& path);
// A name in an open directory; AT_FDCWD: the working directory.
struct NameAt {
  int dir = -1;
  const std::string& name;
};
// Disk::link() with an exclusive rename in its place on file systems without hard links
// (system_disk.h).
Result<void> link_at(NameAt from, NameAt to, const std::string& path);
// Disk::set_mtime() for `name` in the directory; AT_FDCWD: the working directory.
Result<void> set_mtime_at(int dir, const std::string& name, int64_t mtime_ns,
                          const std::string& path);

}  // namespace ff::io
