// Names that other programs rename into a directory (inotify). Network file systems tell only of
// renames made on this machine; whoever needs the others looks for himself.
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

  // Names renamed into the directory since the last call; never waits.
  std::vector<std::string> take();
  // Readable when there is something to take.
  int fd() const { return fd_; }

 private:
  explicit DirEvents(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace ff::io
