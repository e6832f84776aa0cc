// A file of a ClusterDisk, and errors that name its path.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "platform/io/disk.h"
#include "storage/client/file.h"
#include "storage/client/loop_executor.h"

namespace ff::client {

// The error with the path in front of the message, or in place of the name that the metadata
// service used.
Error error_with_path(const std::string& path, Error error);
io::FileKind kind_of(meta::InodeType kind);
io::FileInfo file_info(const meta::Inode& inode);

class ClusterFile final : public io::File {
 public:
  // Called by ClusterDisk only, which outlives it.
  ClusterFile(LoopExecutor& calls, std::shared_ptr<client::File> file, std::string path,
              io::AccessMode access, bool direct, meta::Caller caller);
  // Closes the file. If that succeeds, the next opener sees everything that was written.
  ~ClusterFile() override;

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override;
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t offset, uint64_t length) override;
  Result<void> punch_hole(uint64_t offset, uint64_t length) override;
  Result<io::DataRange> next_data(uint64_t offset) override;
  Result<io::FileInfo> info() override;
  Result<bool> try_lock() override;
  bool direct() const override { return direct_; }

  // For queues: the same operations on the loop, with errors that name the path.
  Task<Result<size_t>> read(ByteSpan into, uint64_t offset);
  Task<Result<size_t>> write(ByteView from, uint64_t offset);
  Task<Result<size_t>> flush();

 private:
  static Task<void> close_later(std::shared_ptr<client::File> file);
  Result<void> check_writes() const;

  LoopExecutor& calls_;
  const std::shared_ptr<client::File> file_;
  const io::AccessMode access_;
  const bool direct_;
  const meta::Caller caller_;
  // The destructor waits for close() if the length was not published or a lock is held.
  std::atomic<bool> length_unpublished_ = false;
  std::atomic<bool> locked_ = false;
};

}  // namespace ff::client
