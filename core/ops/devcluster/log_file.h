// The log of a process whose output another one reads: appended to, and never larger than twice its
// limit, since a full file is renamed (PATH.1) in the place of the one before it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::devcluster {

class LogFile {
 public:
  // Made with the first bytes.
  LogFile(io::Disk& disk, std::string path, uint64_t limit);

  // What cannot be written is lost: a full disk stops nobody's log from being read on.
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
