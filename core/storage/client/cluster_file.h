// A file of a ClusterDisk, and what its errors say.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "platform/io/disk.h"
#include "storage/client/file.h"
#include "storage/client/loop_calls.h"

namespace ff::client {

// The error with the path in front, or in the place of what the metadata service called it.
Error error_at(const std::string& path, Error error);
io::FileKind kind_of(meta::Kind kind);
io::FileInfo file_info(const meta::Inode& inode);

class ClusterFile final : public io::File {
 public:
  // By ClusterDisk alone, which outlives it.
  ClusterFile(LoopCalls& calls, std::shared_ptr<client::File> file, std::string path,
              io::Access access, bool direct, meta::Caller caller);
  // Closes the file; whoever opens it next sees all that was written, if that went well.
  ~ClusterFile() override;

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override;
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t offset, uint64_t length) override;
  Result<void> punch(uint64_t offset, uint64_t length) override;
  Result<io::DataRange> next_data(uint64_t offset) override;
  Result<io::FileInfo> info() override;
  Result<bool> try_lock() override;
  bool direct() const override { return direct_; }

  // For queues: the same in the loop, with errors that name the path.
  Task<Result<size_t>> read(ByteSpan into, uint64_t offset);
  Task<Result<size_t>> write(ByteView from, uint64_t offset);
  Task<Result<size_t>> flush();

 private:
  static Task<void> end(std::shared_ptr<client::File> file);
  Result<void> check_writes() const;

  LoopCalls& calls_;
  const std::shared_ptr<client::File> file_;
  const io::Access access_;
  const bool direct_;
  const meta::Caller caller_;
  // Others wait for it to be closed: for its length, for its lock.
  std::atomic<bool> to_tell_ = false;
  std::atomic<bool> locked_ = false;
};

}  // namespace ff::client
