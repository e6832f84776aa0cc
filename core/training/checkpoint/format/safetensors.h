// The safetensors format: a length word (u64), a JSON header, the tensors' bytes.
//
//   file   := header_length:u64 header data
//   header := {"NAME":{"dtype":"BF16","shape":[2,3],"data_offsets":[begin,end]},...,
//              "__metadata__":{"key":"text",...}}, padded with spaces; at most 100 MB
//
// Offsets count from the start of data; tensors do not overlap and leave no holes. The parser reads
// events into a flat table (a million tensors: about 100 MiB) and builds no document tree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::checkpoint {

constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;  // the format's own limit
constexpr uint64_t kSafetensorsLengthBytes = 8;
constexpr size_t kSafetensorsDimensionsMax = 64;  // more than any framework has
constexpr uint64_t kSafetensorsDimensionMax = uint64_t{1} << 62;
// Pairs in `__metadata__`: it takes ten times its length in memory.
constexpr size_t kSafetensorsMetadataMax = size_t{1} << 20;

// `__metadata__`, in its order.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// Bits of one element ("BF16" -> 16, "F4" -> 4), or 0 for a type this ff does not know.
unsigned dtype_bits(std::string_view dtype);

// Bytes of a tensor. Nothing: a type that this ff does not know, no whole number of bytes, or more
// than 2^62 of them.
std::optional<uint64_t> tensor_bytes(std::string_view dtype, const std::vector<uint64_t>& shape);

class SafetensorsHeader {
 public:
  struct Tensor {
    std::string_view name;
    std::string_view dtype;
    std::vector<uint64_t> shape;
    uint64_t begin = 0;  // in the data section
    uint64_t end = 0;
  };

  // `json` is the header without its length word, `data_size` the bytes after it. Checks types,
  // sizes, names, overlaps and holes; every error is Errc::failed and names the tensor.
  static Result<SafetensorsHeader> parse(std::string_view json, uint64_t data_size);

  // In the order of their data.
  size_t count() const { return entries_.size(); }
  Tensor tensor(size_t index) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  bool has_metadata() const { return has_metadata_; }
  // Names of types dtype_bits does not know; their tensors are kept as plain bytes.
  const std::vector<std::string>& unknown_dtypes() const { return unknown_dtypes_; }

 private:
  friend class HeaderEvents;
  struct Entry {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint32_t name_at = 0;  // in names_
    uint32_t name_length = 0;
    uint32_t shape_at = 0;  // in shapes_
    uint16_t dimensions = 0;
    uint16_t dtype = 0;  // in dtypes_
  };
  std::string_view name(const Entry& entry) const {
    return std::string_view(names_).substr(entry.name_at, entry.name_length);
  }
  Result<void> check(uint64_t data_size);
  Result<void> check_sizes();
  Result<void> check_names() const;
  Result<void> check_layout(uint64_t data_size) const;

  std::vector<Entry> entries_;
  std::string names_;
  std::vector<uint64_t> shapes_;
  std::vector<std::string> dtypes_;
  SafetensorsMetadata metadata_;
  bool has_metadata_ = false;
  std::vector<std::string> unknown_dtypes_;
};

// The length word and header of a file of `header_bytes` in total: Errc::failed when the word
// cannot be one (longer than the file or the limit).
Result<uint64_t> safetensors_header_length(std::string_view first_8_bytes, uint64_t file_size);

// Writes a canonical header, byte for byte what the reference implementation (Rust, serde_json)
// writes: compact JSON, `__metadata__` first, tensors in the order added, offsets without holes,
// in texts only `"`, `\` and control characters escaped, padded with spaces to a multiple of 8.
class SafetensorsHeaderWriter {
 public:
  // Written first in the header, whenever it is called; no call: no metadata.
  void metadata(const SafetensorsMetadata& pairs);
  void tensor(std::string_view name, std::string_view dtype, const std::vector<uint64_t>& shape,
              uint64_t bytes);
  // Length word and header, once; Errc::failed above kSafetensorsHeaderMax.
  Result<std::string> finish();
  uint64_t data_size() const { return offset_; }

 private:
  std::string metadata_;  // `"__metadata__":{...}` or empty
  std::string tensors_;   // entries, comma-separated
  uint64_t offset_ = 0;
};

// `__metadata__` of a header, nothing when it has none; skips everything else. Errc::corrupt when
// it is not JSON, is nested deeper than a header, or has too many pairs.
Result<std::optional<SafetensorsMetadata>> safetensors_metadata(std::string_view json);

}  // namespace ff::checkpoint
