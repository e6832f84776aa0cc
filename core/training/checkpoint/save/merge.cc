// merge.cc: many shards into one index, line by line; keeps the position of each slice, to check
// that all ranks agree.
#include "training/checkpoint/save/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "platform/base/text.h"
#include "training/checkpoint/format/slice_cover.h"

namespace ff::checkpoint {
namespace {

constexpr std::string_view kWholeHint =
    "All ranks together save each element of a split tensor once; with --split, equal parts.";

// The slices of one tensor, and what they have in common.
struct Sliced {
  std::string dtype;
  std::vector<uint64_t> global_shape;
  SliceCover cover;
};

class SliceChecker {
 public:
  Result<void> add(const TensorRecord& tensor) {
    if (tensor.global_shape.empty()) return {};
    auto [it, fresh] = sliced_.try_emplace(
        whole_name(tensor),
        Sliced{.dtype = tensor.dtype, .global_shape = tensor.global_shape, .cover = {}});
    Sliced& seen = it->second;
    if (seen.dtype == tensor.dtype && seen.global_shape == tensor.global_shape) {
      seen.cover.add(tensor.slice_start, tensor.shape);
      return {};
    }
    return Error{Errc::failed,
                 fmt::format("tensor '{}': its slices differ in type or shape between ranks",
                             printable(whole_name(tensor))),
                 std::string(kWholeHint)};
  }

  Result<void> finish() const {
    for (const auto& [name, seen] : sliced_) {
      const auto covered = seen.cover.check(seen.global_shape);
      if (covered) continue;
      return Error{covered.error().code,
                   fmt::format("tensor '{}': {}", printable(name), covered.error().message),
                   std::string(kWholeHint)};
    }
    return {};
  }

 private:
  std::map<std::string, Sliced> sliced_;
};

}  // namespace

Result<EndRecord> merge_shards(io::Disk& disk, const std::vector<std::string>& shards,
                               const std::string& out) {
  std::optional<IndexWriter> writer;
  SliceChecker slices;
  for (const auto& shard : shards) {
    FF_TRY(auto reader, IndexReader::open(disk, shard));
    if (!writer) {
      HeaderRecord header = reader.header();
      header.rank.reset();
      (void)disk.remove(out);  // of an earlier attempt of this process
      FF_TRY(writer, IndexWriter::create(disk, out, header));
    }
    for (;;) {
      FF_TRY(const auto record, reader.next());
      if (!record) break;
      if (const auto* file = std::get_if<FileRecord>(&*record)) {
        FF_TRY(writer->add(*file));
      } else if (const auto* tensor = std::get_if<TensorRecord>(&*record)) {
        FF_TRY(slices.add(*tensor));
        FF_TRY(writer->add(*tensor));
      }
    }
  }
  FF_CHECK(writer.has_value());
  FF_TRY(slices.finish());
  return writer->finish();
}

}  // namespace ff::checkpoint
