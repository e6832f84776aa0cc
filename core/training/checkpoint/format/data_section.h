// DataSection checks that the tensors of each safetensors file in an index fill its data section in
// order, without holes and overlaps. Whoever restores a file relies on it: all bytes lie inside the
// file, and each is written once.
#pragma once

#include <cstdint>
#include <string>

#include "training/checkpoint/format/index.h"

namespace ff::checkpoint {

class DataSection {
 public:
  // The path is for messages.
  explicit DataSection(std::string index_path) : index_path_(std::move(index_path)) {}

  // The next file of the index, after end() of the one before.
  void begin(const FileRecord& file);
  // A tensor of this file. Returns where its bytes begin in the file. Errc::corrupt: not at the end
  // of those before it, or beyond the end of the file.
  Result<uint64_t> add(const TensorRecord& tensor);
  // Errc::corrupt: the file has bytes that no tensor has.
  Result<void> end() const;

 private:
  std::string index_path_;
  std::string name_;  // of the file
  bool has_tensors_ = false;
  uint64_t header_bytes_ = 0;
  uint64_t at_ = 0;  // where the next tensor begins in the file
  uint64_t size_ = 0;
};

}  // namespace ff::checkpoint
