// Loads tensors into memory of the caller. There are two steps, because the caller must know the
// tensors before it can allocate memory: plan() reads the index, read() the chunks, with the same
// workers and checks as a load into files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct TensorMemoryOptions {
  std::string name;                  // RUN[@STEP]
  std::optional<uint32_t> rank;      // only files of this rank
  std::vector<std::string> tensors;  // globs; empty: all of them
};

class TensorMemory {
 public:
  // A safetensors file of the checkpoint.
  struct File {
    std::string name;
    uint32_t rank = 0;
    SafetensorsMetadata metadata;
    size_t first = 0;    // index of its first selected tensor in tensors()
    size_t tensors = 0;  // how many
  };
  struct Tensor {
    std::string name;
    std::string dtype;  // as in the safetensors header
    std::vector<uint64_t> shape;
    uint64_t bytes = 0;
  };

  // Skips files that are not safetensors and, with globs, files without a matching tensor. Errors:
  // not_found (also when no tensor is left), corrupt, newer_format, usage, interrupted. The context
  // must outlive the result.
  static Result<std::unique_ptr<TensorMemory>> plan(Context& context, const std::string& store_path,
                                                    const TensorMemoryOptions& options);

  const StepName& name() const { return name_; }
  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

  // Fills into[i] with the bytes of tensors()[i], in row-major order, all checked against CRC32C;
  // null for an empty tensor. Errc::corrupt names tensor and chunk; memory that
  // was filled until then stays so.
  Result<void> read(std::span<std::byte* const> into);

 private:
  class Source;
  TensorMemory(Context& context, Store store, StepName name, TensorMemoryOptions options)
      : context_(context),
        store_(std::move(store)),
        name_(std::move(name)),
        options_(std::move(options)) {}
  Result<void> scan();
  Result<SafetensorsMetadata> metadata_of(const std::vector<ChunkExtent>& header,
                                          const std::string& file) const;

  Context& context_;
  Store store_;
  StepName name_;
  TensorMemoryOptions options_;
  std::unique_ptr<Lease> lease_;  // null on a store that this user may not write
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
};

}  // namespace ff::checkpoint
