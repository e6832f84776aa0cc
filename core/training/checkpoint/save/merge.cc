// merge.cc: many shards into one index, line by line; keeps one small entry for each sliced tensor
// to check that all ranks agree.
#include "training/checkpoint/save/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "platform/base/text.h"

namespace ff::checkpoint {
namespace {

// The common properties of all slices of one tensor, and their number so far.
struct Sliced {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> global_shape;
  uint64_t count = 0;
};

class SliceChecker {
 public:
  Result<void> add(const TensorRecord& tensor) {
    if (tensor.global_shape.empty()) return {};
    auto [it, fresh] = sliced_.try_emplace(
        tensor.name, Sliced{tensor.dtype, tensor.shape, tensor.global_shape, 0});
    Sliced& seen = it->second;
    seen.count++;
    if (seen.dtype == tensor.dtype && seen.shape == tensor.shape &&
        seen.global_shape == tensor.global_shape) {
      return {};
    }
    return Error{Errc::failed,
                 fmt::format("tensor '{}': its slices differ in type or shape between ranks",
                             printable(tensor.name)),
                 "--split is for tensors of which every rank holds an equal part."};
  }

  Result<void> finish(uint32_t world) const {
    for (const auto& [name, seen] : sliced_) {
      if (seen.count == world) continue;
      return Error{Errc::failed,
                   fmt::format("tensor '{}': {} of {} ranks have a slice of it", printable(name),
                               seen.count, world),
                   "--split is for tensors of which every rank holds an equal part."};
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
  FF_TRY(slices.finish(static_cast<uint32_t>(shards.size())));
  return writer->finish();
}

}  // namespace ff::checkpoint
