// The target of `ff bench io`: a file in a cluster's file system (disk_passes.h).
#pragma once

#include <memory>
#include <string>

#include "lab/bench/disk_passes.h"
#include "storage/client/file_system.h"

namespace ff::bench {

class FileBenchTarget final : public BenchTarget {
 public:
  FileBenchTarget(client::FileSystem& files, meta::Caller caller, std::string name)
      : files_(files), caller_(std::move(caller)), name_(std::move(name)) {}
  // Creates the file in the root directory, with the default layout.
  Task<Result<void>> make();
  // Removes it.
  Task<Result<void>> remove();
  const meta::Layout& layout() const { return file_->inode().layout; }

  Task<Result<void>> write(uint64_t index, ByteView from) override;
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override;
  Task<Result<void>> sync() override;
  Task<Result<void>> read_batch(std::vector<Small> reads) override;

 private:
  client::FileSystem& files_;
  const meta::Caller caller_;
  const std::string name_;
  std::shared_ptr<client::File> file_;
};

}  // namespace ff::bench
