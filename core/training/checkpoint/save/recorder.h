// Puts finished jobs back into order and writes the index from them: workers finish in any order,
// an index is written front to back.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "training/checkpoint/format/index.h"
#include "training/checkpoint/save/input.h"

namespace ff::checkpoint {

// What became of a job's bytes.
struct StoredJob {
  std::optional<simd::Digest> chunk;  // nothing: all zeros
  std::vector<uint32_t> crcs;         // of each piece; empty when there is no chunk
};

class Recorder {
 public:
  Recorder(IndexWriter writer, SaveReport& report) : writer_(std::move(writer)), report_(report) {}

  // Thread-safe. Jobs that wait for an earlier one hold only their extents.
  Result<void> done(Job job, StoredJob stored);
  // After the last job.
  Result<EndRecord> finish();

 private:
  Result<void> write(Job& job, const StoredJob& stored);
  Result<void> close_record();

  std::mutex mutex_;
  IndexWriter writer_;
  SaveReport& report_;
  uint64_t next_ = 0;
  std::map<uint64_t, std::pair<Job, StoredJob>> early_;
  std::optional<std::variant<FileRecord, TensorRecord>> open_;
};

}  // namespace ff::checkpoint
