// Memory as an open file: parts that lie anywhere, one after the other. For a producer or consumer
// of bytes that works on files, where the bytes are in this process already. Its size is fixed and
// it is on no disk; an IoQueue does not take it, read_cached() always has every byte.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/io/disk.h"

namespace ff::io {

class MemoryFile final : public File {
 public:
  // The parts outlive it; those of a file that is only read may be read-only memory. `name` is for
  // messages.
  MemoryFile(std::string name, std::vector<ByteSpan> parts);

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  // Errc::failed beyond the end.
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override { return {}; }
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t, uint64_t) override { return {}; }
  Result<void> punch(uint64_t offset, uint64_t length) override;
  Result<DataRange> next_data(uint64_t offset) override;
  // A regular file, with no time, owner or inode.
  Result<FileInfo> info() override;
  Result<bool> try_lock() override { return true; }
  bool direct() const override { return false; }

 private:
  // Calls action(memory, bytes before it) for each stretch of [offset, offset + length).
  template <class Action>
  void each_stretch(uint64_t offset, uint64_t length, Action action) const;
  Result<void> check_range(uint64_t offset, uint64_t length) const;

  std::vector<ByteSpan> parts_;
  std::vector<uint64_t> begins_;  // of each part in the file
  uint64_t size_ = 0;
};

}  // namespace ff::io
