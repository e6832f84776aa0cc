// The metadata of one disk, as rows (rows.h) in a log and sorted runs.
//
//   DIR/chunks.index   names the runs and the first segment that are valid (checkpoint.h)
//   DIR/chunks.log-N   segments of the log (metadata_log.h)
//   DIR/chunks.run-N   sorted runs: the rows at the last checkpoint (sorted_run.h)
//
// apply() appends one entry to the log. A checkpoint, beside further changes, moves the entries of
// closed segments into a run and frees the segments. Rows are read only when the disk is opened.
// Data in the log (data_change()) is readable until its segment is free: the owner must not let a
// checkpoint free it while a row refers to it.
//
// Changes survive a process crash as soon as apply() returns, and a power loss after a flush. After
// a power loss a prefix of the changes remains. Belongs to one loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

constexpr uint64_t kLogSegmentBytes = 8 * kMiB;
constexpr size_t kDataSegmentsMax = 24;

// How large a log becomes.
struct MetadataLogLimits {
  uint64_t segment_bytes = kLogSegmentBytes;
  // Full segments before a checkpoint. They collect small updates, which share the cost of the
  // checkpoint, and the pages that it writes; opening a disk reads them.
  size_t checkpoint_segments = 8;
  // With this many full segments no more data goes to the log, only rows: the checkpoints are
  // behind.
  size_t data_segments_max = kDataSegmentsMax;
};
// Those for a disk of this size: it collects small updates of 64 MiB to 512 MiB, at most 0.2 % of
// a disk of 32 GiB or more.
MetadataLogLimits metadata_log_limits(uint64_t disk_bytes);

struct MetadataOptions {
  io::Disk& disk;
  std::string dir;
  std::string disk_id;  // open(): empty for any
  Rng& rng;
  MetadataLogLimits log = {.checkpoint_segments = 1};
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
  // Applies `changes` to what open() has found, makes all durable, and begins a new segment, whose
  // first entry is `first`, if that is not empty. All of that or nothing happens; then the segments
  // of before are free.
  Result<void> start(const RowChanges& changes = {}, const RowChanges& first = {});
  // As MetadataLog::write_again(); between open() and start().
  Result<void> write_again() { return log_.write_again(); }

  // Applies the rows in one entry.
  Result<void> apply(std::string_view rows);
  Result<void> apply(const RowChanges& changes);
  // Makes applied changes durable; blocks.
  Result<void> flush();
  // The same in steps: the files to sync; then the position that was durable before.
  std::vector<std::shared_ptr<io::File>> unsynced_files() { return log_.unsynced_files(); }
  void set_durable(uint64_t position) { log_.set_durable(position); }

  // The place of data in the log.
  LogPlace find(uint64_t lsn) const { return log_.find(lsn); }
  // Whether data may go to the log: there is space on the disk, and the checkpoints keep up.
  bool has_room_for_data() const { return log_.has_space() && !is_full_of_data(); }
  // Whether it will have room after the checkpoint that is due or under way.
  bool will_have_room() const {
    return limits_.data_segments_max > 0 && log_.has_space() && is_full_of_data() && tried_ == 0;
  }

  // The end of the log in bytes since the disk was made. Never falls unless the disk loses changes.
  uint64_t position() const { return log_.end_lsn(); }
  // Reports each position from now on, before apply() returns. `acked` must outlive it.
  void report_to(AckedPosition& acked) { acked_ = &acked; }

  // Whether enough segments are full and no checkpoint is under way.
  bool needs_checkpoint() const {
    return !checkpointing_ && !failure_ &&
           log_.closed().size() >= std::max(limits_.checkpoint_segments, tried_ + 1);
  }
  // The segment in use, and the LSN of its first entry.
  uint64_t segment() const { return log_.sequence(); }
  uint64_t segment_lsn() const { return log_.first_lsn(); }
  // A checkpoint of the segments before `end`, or that could not be made: the next full segment
  // leads to the next attempt. Each begin_checkpoint() needs a finish_checkpoint() with the result
  // of its job. On a full disk the log is kept; after any other error apply() fails.
  CheckpointJob begin_checkpoint(uint64_t end);
  void put_off_checkpoint() { tried_ = log_.closed().size(); }
  void finish_checkpoint(Result<Checkpoint> done);
  void checkpoint_if_needed();  // all at once

  // Size of log and runs.
  uint64_t stored_bytes() const;

 private:
  explicit Metadata(const MetadataOptions& options);
  CheckpointJob job(uint64_t end);
  bool is_full_of_data() const { return log_.closed().size() >= limits_.data_segments_max; }
  Result<void> remove_leftovers();

  io::Disk& disk_;
  const std::string dir_;
  std::unique_ptr<Rng> rng_;
  MetadataLog log_;
  LogRows rows_;  // of the log, until start()
  Checkpoint checkpoint_;
  uint64_t next_run_ = 1;
  const MetadataLogLimits limits_;
  bool checkpointing_ = false;
  size_t tried_ = 0;  // closed segments when the disk was too full for a checkpoint
  std::optional<Error> failure_;
  AckedPosition* acked_ = nullptr;
};

}  // namespace ff::chunk
