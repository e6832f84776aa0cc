// DirEvents: reports names that programs rename into a directory (inotify(7), IN_MOVED_TO). On
// network file systems inotify reports only the renames of this machine; poll the directory to find
// those of other machines.
#pragma once

#include <string>
#include <vector>

#include "platform/base/result.h"

namespace ff::io {

class DirEvents {
 public:
  static Result<DirEvents> open(const std::string& dir);
  ~DirEvents();
  DirEvents(DirEvents&& other) noexcept;
  DirEvents& operator=(DirEvents&&) = delete;

  // Returns the names renamed into the directory since the last call; never blocks.
  std::vector<std::string> read_names();
  // Readable when read_names() has something to return.
  int fd() const { return fd_; }

 private:
  explicit DirEvents(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace ff::io
