// The files that an import reads. A folder may have more of them than a process can open, so only
// some are open at a time. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "platform/io/disk.h"

namespace ff::checkpoint {

class ImportSources {
 public:
  explicit ImportSources(io::Disk& disk) : disk_(disk) {}

  // Gives the number of the file. Errc::failed: it is no regular file.
  Result<size_t> add(const std::string& path);
  // A file that stays open.
  Result<size_t> add(std::shared_ptr<io::File> file);

  // Fills `into`. Errc::corrupt: the file is shorter; failed: it has changed since add().
  Result<void> read(size_t source, ByteSpan into, uint64_t offset);

  uint64_t size(size_t source) const { return files_[source].info.size; }
  const std::string& path(size_t source) const { return files_[source].path; }

 private:
  struct SourceFile {
    std::string path;
    io::FileInfo info = {};
    std::shared_ptr<io::File> file = {};  // while it is open
  };
  Result<std::shared_ptr<io::File>> open(size_t source);

  io::Disk& disk_;
  std::deque<SourceFile> files_;
  std::mutex mutex_;
  std::deque<size_t> open_;  // sources with a file, in the order in which they were opened
};

// The CRC-32 of ZIP archives of some bytes followed by `bytes`; `before` is that of the former, 0
// for none.
uint32_t zip_crc32(uint32_t before, ByteView bytes);

}  // namespace ff::checkpoint
