// Restoring whole files of a checkpoint into a staging directory, byte for byte.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/format/data_section.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/read_worker.h"

namespace ff::checkpoint {

// The path of a restored file below a directory: its own name, or, when names of several ranks
// collide, rank-RRRRR/NAME.
class RestorePaths {
 public:
  explicit RestorePaths(bool rank_folders = false) : rank_folders_(rank_folders) {}
  std::string of(const FileRecord& file) const;

 private:
  bool rank_folders_;
};

struct RestoreSelection {
  std::function<bool(const FileRecord&)> file;  // empty: all files
  bool rank_folders = false;                    // even when no names collide
  io::Disk* index_disk = nullptr;               // where the index is; null: the context's disk
};

struct RestoreCount {
  uint64_t files = 0;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  uint64_t stored_bytes = 0;  // without zeros: the space that the restored files will need
};

class RestoreSource final : public ReadSource {
 public:
  // Reads the whole index first, so that damage is found before anything is written. The files go
  // to directory `staging` of `target`, which outlives the result and leaves nobody else a way to
  // lead them elsewhere (Disk::beneath).
  static Result<RestoreSource> plan(Context& context, const std::string& index_path,
                                    io::Disk& target, std::string staging,
                                    RestoreSelection selection);

  Result<std::optional<ReadJob>> next() override;
  // After the last job: symbolic links, modes and times of directories.
  Result<void> finish();

  const RestoreCount& count() const { return count_; }
  const RestorePaths& paths() const { return paths_; }

 private:
  RestoreSource(Context& context, std::string index_path, io::Disk& target, std::string staging,
                RestoreSelection selection);
  Result<void> open_reader();
  Result<void> scan();
  Error twice(const FileRecord& file) const;
  Result<void> count_file(const FileRecord& file);
  Result<void> begin_file(FileRecord file);
  Result<void> add_tensor(TensorRecord tensor);
  Result<void> end_file();

  Context* context_;
  std::string index_path_;
  io::Disk* target_;
  std::string staging_;
  RestoreSelection selection_;
  std::optional<IndexReader> reader_;
  RestorePaths paths_;
  RestoreCount count_;
  JobBuilder builder_;
  bool ended_ = false;

  std::shared_ptr<OutFile> file_;  // current file; null while lines of other files are skipped
  DataSection section_;            // of the current file
  std::vector<FileRecord> directories_;
  std::vector<FileRecord> links_;
};

// Makes the directories above `path`.
Result<void> make_parents(io::Disk& disk, const std::string& path);

// Errc::disk_full when the file system of `dir` has no room for `bytes`.
Result<void> check_space(io::Disk& disk, const std::string& dir, uint64_t bytes);

// Reads the length word and the header of a safetensors file into memory, with all checks.
// Errc::corrupt: longer than a header can be, or shorter than a length word.
Result<std::string> read_header(Context& context, const Store& store,
                                const std::vector<ChunkExtent>& extents);

// The metadata in that header; nothing when it has none.
Result<std::optional<SafetensorsMetadata>> read_metadata(Context& context, const Store& store,
                                                         const std::vector<ChunkExtent>& extents);

// Limits the metadata that one action keeps in memory: any number of files of a checkpoint may
// refer to the same stored header.
class MetadataBudget {
 public:
  // Errc::corrupt, naming the index, when there is no room for these.
  Result<void> take(const SafetensorsMetadata& pairs, const std::string& index_path);

 private:
  uint64_t left_ = uint64_t{256} << 20;  // bytes
};

// The sum, or UINT64_MAX for a larger one.
uint64_t add_or_max(uint64_t a, uint64_t b);

// For error messages: the tensors and files that use each damaged chunk. Reads the index again.
std::map<simd::Digest, std::string> chunk_users(io::Disk& disk, const std::string& index_path,
                                                const std::set<simd::Digest>& chunks);
std::string chunk_users(io::Disk& disk, const std::string& index_path, const simd::Digest& chunk);

// The error of an action that met a damaged chunk.
Error damaged_chunk(io::Disk& disk, const Store& store, const StepName& name,
                    const simd::Digest& chunk, const std::string& reason);

}  // namespace ff::checkpoint
