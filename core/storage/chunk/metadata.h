// The metadata of one disk, as rows (rows.h) in a log and sorted runs.
//
//   DIR/chunks.index   names the runs and the first segment that are valid (checkpoint.h)
//   DIR/chunks.log-N   segments of the log (metadata_log.h)
//   DIR/chunks.run-N   sorted runs: the rows at the last checkpoint (sorted_run.h)
//
// apply() appends one entry to the log. A checkpoint, beside further changes, moves the entries of
// closed segments into a run and frees the segments. Rows are read only when the disk is opened.
//
// Changes survive a process crash as soon as apply() returns, and a power loss after a flush. After
// a power loss a prefix of the changes remains. Belongs to one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "storage/chunk/acked_position.h"
#include "storage/chunk/checkpoint.h"
#include "storage/chunk/metadata_log.h"
#include "storage/chunk/row_source.h"
#include "storage/chunk/rows.h"

namespace ff::chunk {

// A checkpoint follows each full segment; opening a disk reads one or two of them.
constexpr uint64_t kLogSegmentBytes = 8 * kMiB;

struct MetadataOptions {
  io::Disk& disk;
  std::string dir;
  std::string disk_id;  // open(): empty for any
  Rng& rng;
  uint64_t segment_bytes = kLogSegmentBytes;
};

class Metadata {
 public:
  // Makes the metadata of a new disk from rows, durably, in place of leftovers of an interrupted
  // call. Errors: disk_full; else those of the disk and of `rows`.
  static Result<void> create(const MetadataOptions& options, RowSource& rows);
  // Reads the log; start() must follow before changes. `rng` must outlive the call only. Errors:
  // not_found (no index), newer_format, corrupt; else those of the disk.
  static Result<std::unique_ptr<Metadata>> open(const MetadataOptions& options);

  // Calls `visit` for each row in ascending key order; before start() only. Errors: corrupt, and
  // those of `visit`.
  using Visit =
      std::function<Result<void>(RowKind table, std::string_view key, std::string_view body)>;
  Result<void> scan(const Visit& visit);
  // Makes durable what open() has found, and begins a new segment.
  Result<void> start();

  // Applies all of `batch` in one entry.
  Result<void> apply(std::span<const RowChanges* const> batch);
  Result<void> apply(const RowChanges& changes);
  // Makes applied changes durable; blocks.
  Result<void> flush();
  // The same in steps: the files to sync; then the position that was durable before.
  std::vector<std::shared_ptr<io::File>> unsynced_files() { return log_.unsynced_files(); }
  void set_durable(uint64_t position) { log_.set_durable(position); }

  // The end of the log in bytes since the disk was made. Never falls unless the disk loses changes.
  uint64_t position() const { return log_.end_lsn(); }
  // Reports each position from now on, before apply() returns. `acked` must outlive it.
  void report_to(AckedPosition& acked) { acked_ = &acked; }

  // Whether segments are full and no checkpoint is under way.
  bool needs_checkpoint() const { return !checkpointing_ && log_.closed().size() > tried_; }
  // Each begin_checkpoint() needs a finish_checkpoint() with the result of its job. On a full disk
  // the log is kept, and the next full segment leads to the next attempt; after any other error
  // apply() fails.
  CheckpointJob begin_checkpoint();
  void finish_checkpoint(Result<Checkpoint> done);
  void checkpoint_if_needed();  // all at once

  // Size of log and runs.
  uint64_t stored_bytes() const;

 private:
  explicit Metadata(const MetadataOptions& options);
  CheckpointJob job();
  Result<void> remove_leftovers();

  io::Disk& disk_;
  const std::string dir_;
  std::unique_ptr<Rng> rng_;
  MetadataLog log_;
  LogRows rows_;  // of the log, until start()
  Checkpoint checkpoint_;
  uint64_t next_run_ = 1;
  bool checkpointing_ = false;
  size_t tried_ = 0;  // closed segments when the disk was too full for a checkpoint
  std::optional<Error> failure_;
  AckedPosition* acked_ = nullptr;
};

}  // namespace ff::chunk
