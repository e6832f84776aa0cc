// Tensors of other files as one safetensors file, which a save reads (SaveInputs::open): its header
// is in memory, and the bytes of tensors are fetched from where they lie, in the order of their
// elements, whatever the strides of a tensor are there.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/io/disk.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/import/sources.h"

namespace ff::checkpoint {

struct ImportedTensor {
  std::string name;
  std::string dtype;  // of safetensors
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
  // Where the first element is, and how far one is from the next, in bytes, for each dimension. All
  // of it lies in the file.
  size_t source = 0;
  uint64_t begin = 0;
  std::vector<uint64_t> strides = {};
  // Or the bytes themselves.
  std::shared_ptr<const std::string> memory = {};
};

class TensorFile final : public io::File {
 public:
  // `sources` outlives the file. Errc::failed: the header would be too long.
  static Result<std::shared_ptr<TensorFile>> make(const std::string& name, ImportSources& sources,
                                                  std::vector<ImportedTensor> tensors,
                                                  const SafetensorsMetadata& texts);

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<io::FileInfo> info() override;
  Result<io::DataRange> next_data(uint64_t offset) override;
  bool direct() const override { return false; }

  // It is only read.
  Result<void> write_at(ByteView, uint64_t) override { return read_only(); }
  Result<void> sync() override { return {}; }
  Result<void> truncate(uint64_t) override { return read_only(); }
  Result<void> reserve(uint64_t, uint64_t) override { return read_only(); }
  Result<void> punch_hole(uint64_t, uint64_t) override { return read_only(); }
  Result<bool> try_lock() override { return true; }

 private:
  // A tensor as runs of bytes that lie together: their number and distance in each dimension.
  struct Layout {
    uint64_t begin = 0;  // in this file
    uint64_t run = 0;    // bytes
    uint64_t span = 0;   // bytes from the first element to the end of the last one
    std::vector<uint64_t> counts = {};
    std::vector<uint64_t> strides = {};
  };
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  TensorFile(std::string name, ImportSources& sources) : File(std::move(name)), sources_(sources) {}
  static Layout layout_of(const ImportedTensor& tensor);
  Error read_only() const { return fail(Errc::unsupported, "{}: it is only read", path()); }
  Result<void> read_tensor(size_t index, ByteSpan into, uint64_t offset);
  Result<void> read_runs(size_t index, ByteSpan into, uint64_t offset);
  Result<Bytes> span_of(size_t index);

  ImportSources& sources_;
  std::vector<ImportedTensor> tensors_;
  std::vector<Layout> layouts_;
  std::string header_;
  uint64_t size_ = 0;
  std::mutex mutex_;
  std::list<std::pair<size_t, Bytes>> spans_;  // of tensors with scattered elements, newest first
};

}  // namespace ff::checkpoint
