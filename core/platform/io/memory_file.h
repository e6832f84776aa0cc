// MemoryFile: memory ranges of this process, presented as one open file, for code that reads or
// writes files. Its size is fixed, read_cached() always succeeds, and an IoQueue does not accept
// it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/io/disk.h"

namespace ff::io {

class MemoryFile final : public File {
 public:
  // The parts must outlive the file; they may be read-only memory if the file is only read. `name`
  // appears in messages.
  MemoryFile(std::string name, std::vector<ByteSpan> parts);

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  // Errc::failed if the range exceeds the file.
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override { return {}; }
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t, uint64_t) override { return {}; }
  Result<void> punch_hole(uint64_t offset, uint64_t length) override;
  Result<DataRange> next_data(uint64_t offset) override;
  // A regular file, with no time, owner or inode.
  Result<FileInfo> info() override;
  Result<bool> try_lock() override { return true; }
  bool direct() const override { return false; }

 private:
  // Calls action(memory, bytes before it) for each extent of [offset, offset + length).
  template <class Action>
  void each_extent(uint64_t offset, uint64_t length, Action action) const;
  Result<void> check_range(uint64_t offset, uint64_t length) const;

  std::vector<ByteSpan> parts_;
  std::vector<uint64_t> begins_;  // file offset of each part
  uint64_t size_ = 0;
};

}  // namespace ff::io
