// Loading tensors into memory of the caller, without a file in between. Two steps, since the caller
// must know what there is before it can say where to put it: plan() reads the index, read() the
// chunks, by the same workers and with the same checks as a load into files.
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
  std::optional<uint32_t> rank;      // only what this rank has saved
  std::vector<std::string> tensors;  // globs; empty: all of them
};

class TensorMemory {
 public:
  // A safetensors file of the checkpoint.
  struct File {
    std::string name;
    uint32_t rank = 0;
    SafetensorsMetadata metadata;
    size_t first = 0;    // of its chosen tensors, in tensors()
    size_t tensors = 0;  // how many
  };
  struct Tensor {
    std::string name;
    std::string dtype;  // as in the safetensors header
    std::vector<uint64_t> shape;
    uint64_t bytes = 0;
  };

  // Files that are not safetensors are passed over. With globs, so are files of which no tensor is
  // chosen. Errors: not_found (also when nothing is left), corrupt, newer_format, usage,
  // interrupted. The context outlives what this returns.
  static Result<std::unique_ptr<TensorMemory>> plan(Context& context, const std::string& store_path,
                                                    const TensorMemoryOptions& options);

  const StepName& name() const { return name_; }
  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

  // Fills into[i] with the bytes of tensors()[i], in row-major order, all checked against CRC32C;
  // null where it has none. Errc::corrupt names tensor and chunk; what was written until then
  // stays.
  Result<void> read(std::span<std::byte* const> into);

 private:
  class Source;
  TensorMemory(Context& context, Store store, StepName name, TensorMemoryOptions options)
      : context_(context),
        store_(std::move(store)),
        name_(std::move(name)),
        options_(std::move(options)) {}
  Result<void> scan();
  Result<SafetensorsMetadata> metadata_of(const std::vector<Extent>& header,
                                          const std::string& file) const;

  Context& context_;
  Store store_;
  StepName name_;
  TensorMemoryOptions options_;
  std::unique_ptr<Lease> lease_;  // null where only reading is allowed
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
};

}  // namespace ff::checkpoint
