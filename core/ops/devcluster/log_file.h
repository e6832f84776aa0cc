// The log of a child process, written by its parent: appended to, and rotated (PATH.1), so that it
// never takes more than twice its limit.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

class LogFile {
 public:
  // The file is created with the first bytes.
  LogFile(io::Disk& disk, std::string path, uint64_t limit);

  // Bytes that cannot be written are lost: a full disk does not block the process.
  void write(std::string_view bytes);

 private:
  Result<void> append(std::string_view bytes);

  io::Disk& disk_;
  const std::string path_;
  const uint64_t limit_;
  std::unique_ptr<io::File> file_;
  uint64_t size_ = 0;
};

}  // namespace ff::devcluster
