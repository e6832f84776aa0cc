// Checkpoints of the metadata of a disk: they move rows from the log into sorted runs, and replace
// the index that names what is valid.
//
//   DIR/chunks.index   one line: ff-metadata 2 disk=ID segment=NUMBER lsn=NUMBER
//                      runs=NUMBER:BYTES:CRC,... crc=XXXXXXXX
//                      segment, lsn: the log is needed from this segment on, and its first LSN;
//                      runs: sorted_run.h, oldest first ("-": none); crc: CRC32C of the text before
//                      " crc="
//
// The sizes of the runs stay in a geometric order: a checkpoint merges the runs that are not larger
// than twice what it has to write, so that each row is written a few times at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "storage/chunk/metadata_log.h"
#include "storage/chunk/row_source.h"
#include "storage/chunk/sorted_run.h"

namespace ff::chunk {

// Path of the index.
std::string metadata_path(const std::string& dir);

// What the index names.
struct Checkpoint {
  std::string disk = {};  // id
  uint64_t segment = 0;
  uint64_t lsn = 0;
  std::vector<RunInfo> runs = {};  // oldest first
  bool operator==(const Checkpoint&) const = default;
};

std::string to_line(const Checkpoint& checkpoint);
// Errors: corrupt, newer_format. `path` is for messages.
Result<Checkpoint> parse_checkpoint(std::string_view line, const std::string& path);
// Errors: not_found; those of parse_checkpoint(); else those of the disk.
Result<Checkpoint> read_checkpoint(io::Disk& disk, const std::string& dir);

// Opens the runs from `first` on, newest first.
Result<std::vector<std::unique_ptr<RowSource>>> open_runs(io::Disk& disk, const std::string& dir,
                                                          const std::vector<RunInfo>& runs,
                                                          size_t first);

// The work of one checkpoint; any thread may do it. The disk must outlive it.
struct CheckpointJob {
  io::Disk* disk = nullptr;
  std::string dir = {};
  uint32_t disk_crc = 0;
  Checkpoint before = {};
  std::vector<ClosedSegment> segments = {};  // the log from `before` to next_segment
  uint64_t run_number = 0;                   // of the new run
  uint64_t next_segment = 0;                 // the first one that is still needed afterwards
  uint64_t next_lsn = 0;
  std::shared_ptr<io::File> next_file = {};

  // Reads the segments and writes a checkpoint, durably. Errors: disk_full (nothing has changed);
  // corrupt; else those of the disk.
  Result<Checkpoint> run() const;
  // The same with the rows of the segments.
  Result<Checkpoint> write(const LogRows& rows) const;
};

}  // namespace ff::chunk
