// Writes the index from finished jobs: workers finish jobs in any order, the recorder sorts them
// and writes the index front to back.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "training/checkpoint/format/index.h"
#include "training/checkpoint/save/input.h"

namespace ff::checkpoint {

// Where the bytes of a job are stored.
struct StoredJob {
  std::optional<simd::Digest> chunk;  // nothing: all zeros
  std::vector<uint32_t> crcs;         // of each piece; empty when there is no chunk
};

class IndexRecorder {
 public:
  IndexRecorder(IndexWriter writer, SaveReport& report)
      : writer_(std::move(writer)), report_(report) {}

  // Thread-safe. A job that waits for an earlier one keeps only its extents in memory.
  Result<void> done(SaveJob job, StoredJob stored);
  // After the last job.
  Result<EndRecord> finish();

 private:
  Result<void> write(SaveJob& job, const StoredJob& stored);
  Result<void> close_record();

  std::mutex mutex_;
  IndexWriter writer_;
  SaveReport& report_;
  uint64_t next_ = 0;
  std::map<uint64_t, std::pair<SaveJob, StoredJob>> early_;
  std::optional<std::variant<FileRecord, TensorRecord>> open_;
};

}  // namespace ff::checkpoint
