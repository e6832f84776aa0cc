// A checkpoint store in a directory of any disk (io/disk.h): its layout, and the rules for opening
// one.
//
//   STORE/ff-store.json               format, id, digest kind (a sealed line)
//   STORE/chunks/ab/ab12…             chunk files by digest (chunk_file.h); 256 folders
//   STORE/runs/RUN/STEP/index.jsonl   a committed checkpoint (index.h)
//   STORE/runs/RUN/STEP/shards/W-ATTEMPT/RANK.jsonl   shards of an incomplete step
//   STORE/runs/RUN/STEP/verified      written by verify: a sealed line with the digest of the index
//   STORE/runs/RUN/STEP/damaged       the same, of a checkpoint with damaged chunks
//   STORE/runs/RUN/tasks/             attempts of tasks that save into the run (attempt_fence.h)
//   STORE/runs/RUN/latest             "STEP DIGEST\n": the highest step and its index digest
//   STORE/tmp/ID.lease, STORE/tmp/ID/ the lease of a running action (lease.h), its unfinished files
//   STORE/trash/                      chunks and folders that prune and forget have removed, and
//                                     damaged chunks
//
// A checkpoint exists when its index.jsonl exists. Everything that an index refers to is durable
// before the index gets its name (save.cc), so a crash never leaves half a checkpoint.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/simd/digest.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"

namespace ff::checkpoint {

// Names a checkpoint. Text form RUN@STEP.
struct StepName {
  std::string run;
  uint64_t step = 0;
  std::string text() const;
  friend auto operator<=>(const StepName&, const StepName&) = default;
};

// Letters, digits, `.`, `_`, `-`; not starting with `.`; at most 128. Errc::usage otherwise.
Result<void> check_run_name(std::string_view run);

// The file that makes a directory a store.
constexpr std::string_view kStoreFileName = "ff-store.json";

// Of damaged chunk files in trash/.
constexpr std::string_view kSetAsideSuffix = ".damaged";

class Store {
 public:
  // An existing store. Errors: not_found, refused (a directory of something else), newer_format,
  // corrupt.
  static Result<Store> open(io::Disk& disk, const std::string& path);

  // For salvage: the same, but when ff-store.json is damaged or missing, the names of chunks give
  // the digest kind, and `id` is empty. Errors as open(), corrupt when there are no chunks.
  static Result<Store> open_damaged(io::Disk& disk, const std::string& path);

  struct CreateOptions {
    std::optional<simd::DigestKind> digest;  // default: xxh128, or sha256 for a shared directory
    uint32_t uid = 0;                        // of the writing user
  };
  // Opens for writing; an absent or empty directory becomes a new store. Refused when the store
  // uses xxh128 and belongs to another user (crafted collisions; root may).
  static Result<Store> open_or_create(Context& context, const std::string& path,
                                      const CreateOptions& options);

  const std::string& path() const { return path_; }
  const std::string& id() const { return id_; }
  simd::DigestKind digest_kind() const { return digest_; }

  std::string chunk_path(const simd::Digest& chunk) const;
  std::string chunk_dir(unsigned first_byte) const;
  std::string trash_path(const simd::Digest& chunk) const;
  // Where verify moves a damaged chunk file; no reader looks there.
  std::string set_aside_path(const simd::Digest& chunk) const {
    return trash_path(chunk) + std::string(kSetAsideSuffix);
  }
  std::string runs_dir() const { return path_ + "/runs"; }
  std::string tmp_dir() const { return path_ + "/tmp"; }
  std::string trash_dir() const { return path_ + "/trash"; }
  std::string chunks_dir() const { return path_ + "/chunks"; }
  std::string run_dir(const std::string& run) const { return runs_dir() + "/" + run; }
  std::string step_dir(const StepName& name) const;
  std::string index_path(const StepName& name) const { return step_dir(name) + "/index.jsonl"; }
  std::string shards_dir(const StepName& name) const { return step_dir(name) + "/shards"; }
  std::string verified_path(const StepName& name) const { return step_dir(name) + "/verified"; }
  std::string damaged_path(const StepName& name) const { return step_dir(name) + "/damaged"; }
  std::string tasks_dir(const std::string& run) const { return run_dir(run) + "/tasks"; }
  std::string latest_path(const std::string& run) const { return run_dir(run) + "/latest"; }

 private:
  Store(std::string path, std::string id, simd::DigestKind digest)
      : path_(std::move(path)), id_(std::move(id)), digest_(digest) {}
  static Result<void> create(Context& context, const std::string& path,
                             const CreateOptions& options);
  Result<void> make_folders(io::Disk& disk) const;

  std::string path_;
  std::string id_;
  simd::DigestKind digest_;
};

// Opens the file of a chunk, in chunks/ or, while a prune is unfinished, in trash/. Errc::corrupt:
// it is in neither.
Result<std::unique_ptr<io::File>> open_chunk_file(io::Disk& disk, const Store& store,
                                                  const simd::Digest& chunk, bool direct);

}  // namespace ff::checkpoint
