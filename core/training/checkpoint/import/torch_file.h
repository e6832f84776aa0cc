// Files of torch.save() (PyTorch 1.6 and later): a ZIP archive with the pickle of a value,
// data.pkl, in which tensors are calls of functions of PyTorch, and a file for the bytes of each
// storage, of which tensors are views. ff reads the pickle as data (pickle.h), and knows what these
// calls mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/import/pickle.h"
#include "training/checkpoint/import/sources.h"
#include "training/checkpoint/import/tensor_file.h"
#include "training/checkpoint/import/zip.h"

namespace ff::checkpoint {

// A type of elements, and what PyTorch and safetensors call it.
struct TorchDtype {
  std::string_view name;         // "float32"
  std::string_view storage;      // "FloatStorage"; "" if there is no such class
  std::string_view safetensors;  // "F32"
};
const TorchDtype* torch_dtype(std::string_view name);
// Of "torch.float32"; null for any other name.
const TorchDtype* torch_dtype_of_global(std::string_view global);

// Whether a pickle with tensors may have the name "MODULE.NAME": functions that make tensors,
// types, and containers of Python.
bool is_known_to_torch(std::string_view global);

// Bytes of a source whose CRC-32 is known.
struct CheckedBytes {
  size_t source = 0;
  uint64_t begin = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  std::string name = {};
};

struct TorchTensor {
  ImportedTensor data;  // without a name
  bool requires_grad = false;
  bool is_parameter = false;
  bool has_attributes = false;  // which ff does not import
  CheckedBytes storage;
};

class TorchFile {
 public:
  // The archive in bytes [begin, begin + length) of a source, which outlives this. With
  // `skip_unknown` the pickle may have any names. Errc::refused: a name that is not known;
  // corrupt: damaged; failed: no file of torch.save(), or one that ff does not read.
  static Result<TorchFile> open(ImportSources& sources, size_t source, uint64_t begin,
                                uint64_t length, bool skip_unknown);

  const Pickle& pickle() const { return pickle_; }
  // Whether a value is what a function that makes tensors returns.
  bool is_tensor(Pickle::Id id) const;
  // Errc::corrupt: the arguments make no tensor, or one outside of its storage; failed: a tensor
  // that ff does not import.
  Result<TorchTensor> tensor(Pickle::Id id) const;
  // All storages, whether or not they have tensors.
  Result<std::vector<CheckedBytes>> storages() const;

 private:
  TorchFile(ImportSources& sources, size_t source, uint64_t begin, ZipArchive zip)
      : sources_(sources), source_(source), begin_(begin), zip_(std::move(zip)) {}
  ZipArchive::Read reader() const;
  Result<void> find_prefix();
  Result<std::string> record(std::string_view name) const;
  Result<TorchTensor> rebuilt(std::string_view function, const std::vector<Pickle::Id>& arguments,
                              int depth) const;
  Result<TorchTensor> parameter(const std::vector<Pickle::Id>& arguments, int depth) const;
  Result<TorchTensor> of_type(const std::vector<Pickle::Id>& arguments, int depth) const;
  Result<TorchTensor> view(const std::vector<Pickle::Id>& arguments, bool has_dtype) const;
  Result<CheckedBytes> storage(Pickle::Id id, const TorchDtype*& dtype) const;
  Result<CheckedBytes> bytes_of(const std::string& name, const ZipArchive::Entry& entry) const;
  std::optional<std::vector<uint64_t>> numbers(Pickle::Id id) const;
  std::optional<uint64_t> number(Pickle::Id id) const;

  ImportSources& sources_;
  size_t source_;
  uint64_t begin_;
  ZipArchive zip_;
  std::string prefix_ = {};  // of all entries, with its '/'
  Pickle pickle_ = {};
};

}  // namespace ff::checkpoint
