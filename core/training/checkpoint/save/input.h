// The inputs of a save as a list of entries, and jobs cut from them: each job is one contiguous
// range of one input and becomes one chunk. Tensors of 1 MiB and more are cut every 4 MiB from
// their start; smaller ones that follow each other share a chunk; other files are cut every 4 MiB;
// holes of sparse files are one job, whatever their length, and are never read.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/safetensors.h"
#include "training/checkpoint/format/tensor_parts.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Tensors below this share chunks, so that a million small tensors are not a million files.
constexpr uint64_t kSmallTensorBytes = kMiB;
// Tensors in one shared chunk at most; bounds the memory of a job.
constexpr size_t kPiecesMax = 8192;

struct InputEntry {
  std::string name;  // in the checkpoint
  std::string path;
  io::FileInfo info;
  std::string target;                   // of a symbolic link
  std::shared_ptr<io::File> file = {};  // when it is open already
};

// Expands paths: a directory becomes itself and everything below it, in name order, under its own
// name. Symbolic links below a directory are kept as links; one named directly is followed.
Result<std::vector<InputEntry>> list_inputs(Context& context, const std::vector<std::string>& paths,
                                            const std::vector<OpenInput>& open = {});

// A part of a record's bytes. The first piece of a record contains it.
struct SavePiece {
  std::optional<std::variant<FileRecord, TensorRecord>> starts;
  uint64_t length = 0;
  bool ends = false;  // the record is complete after this piece
};

struct SaveJob {
  uint64_t sequence = 0;
  std::shared_ptr<io::File> file;  // null for a stream and for records without data
  uint64_t offset = 0;             // in the file
  uint64_t length = 0;             // at most kChunkBytes unless it is a hole
  bool hole = false;               // all zeros, not to be read
  bool filled = false;             // the data is in the buffer given to next()
  std::vector<SavePiece> pieces;   // their lengths add up to `length`
};

// Returns jobs in order. Thread-safe.
class SavePlanner {
 public:
  SavePlanner(Context& context, std::vector<InputEntry> entries, std::optional<StreamInput> stream,
              const SaveOptions& options);

  // The next job, or nothing at the end. `buffer` (kChunkBytes) receives the data of a stream.
  // Nothing and `more` set: a stream has no data yet; call it again.
  struct Next {
    std::optional<SaveJob> job;
    bool more = false;
  };
  Result<Next> next(ByteSpan buffer);

  // After the last job: Errc::failed when a file changed since it was opened.
  Result<void> check_unchanged();
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  Result<void> open_entry();
  Result<void> open_safetensors();
  Result<void> plan_more();
  void plan_header();
  void plan_tensors();
  Result<void> plan_opaque();
  Result<Next> next_of_stream(ByteSpan buffer);
  TensorRecord tensor_record(const SafetensorsHeader::Tensor& tensor, const SplitRule* rule) const;
  Result<void> check_splits() const;
  const SplitRule* split_rule(std::string_view name) const;
  FileRecord file_record(EntryKind kind) const;
  void push(SaveJob job);

  Context& context_;
  const SaveOptions& options_;
  std::mutex mutex_;
  std::vector<InputEntry> entries_;
  std::optional<StreamInput> stream_;
  std::vector<std::byte> stream_buffer_;
  size_t stream_held_ = 0;  // bytes in stream_buffer_
  bool stream_started_ = false;
  size_t next_entry_ = 0;
  uint64_t sequence_ = 0;
  std::deque<SaveJob> ready_;
  std::vector<std::string> warnings_;

  // The file being cut.
  std::shared_ptr<io::File> file_;
  const InputEntry* entry_ = nullptr;
  std::optional<SafetensorsHeader> header_;
  TensorParts parts_;
  uint64_t header_bytes_ = 0;  // length word included
  uint64_t at_ = 0;            // opaque: offset; safetensors: header bytes planned
  size_t next_tensor_ = 0;
  uint64_t tensor_at_ = 0;  // bytes of that tensor planned
};

}  // namespace ff::checkpoint
