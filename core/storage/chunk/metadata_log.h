// The log of a disk's metadata: segments of one size (log_segment.h), used in turn and again.
//
// An entry survives the death of the process when append() returns, and a power loss after a sync
// of the files of unsynced_files(). After a power loss a prefix of the entries remains. Belongs to
// one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "storage/chunk/log_segment.h"

namespace ff::chunk {

// A segment that gets no more entries.
struct ClosedSegment {
  std::shared_ptr<io::File> file;
  uint64_t sequence = 0;
  uint64_t first_lsn = 0;
  uint64_t end_lsn = 0;
};

// Gets the rows of one entry.
using VisitRows = std::function<Result<void>(std::string_view rows)>;

// Reads all entries of a closed segment into `memory`, which serves one after the other; any thread
// may call it. Errors: corrupt (it ends early).
Result<void> read_closed_segment(uint32_t disk_crc, const ClosedSegment& segment,
                                 std::string& memory, const VisitRows& visit);

// Where bytes of the log are in a file; null: in none.
struct LogPlace {
  std::shared_ptr<io::File> file;
  uint64_t offset = 0;
};

class MetadataLog {
 public:
  // `rng` must outlive it.
  MetadataLog(io::Disk& disk, std::string dir, const std::string& disk_id, Rng& rng,
              uint64_t segment_bytes);

  // Reads the log from the segment `sequence` on, whose first entry is `lsn`; 0: there is no log
  // yet. No entry can be appended before rotate(). Errors: corrupt (a durable entry is missing).
  Result<void> open(uint64_t sequence, uint64_t lsn, const VisitRows& visit);
  // Continues in another segment.
  Result<void> rotate();
  // Appends one entry, all or nothing; begins another segment when this one is full.
  Result<void> append(std::string_view rows);
  // Writes what open() has found to the same places, for a disk that may have dropped pages.
  Result<void> write_again();

  // The place of the byte at `lsn`, unless its segment was released.
  LogPlace find(uint64_t lsn) const;
  // Whether the disk had space for several more segments when the one in use was begun.
  bool has_space() const { return has_space_; }

  uint64_t end_lsn() const { return end_lsn_; }
  // The segment in use.
  uint64_t sequence() const { return header_.sequence; }
  uint64_t first_lsn() const { return header_.first_lsn; }
  const std::shared_ptr<io::File>& file() const { return file_; }
  uint32_t disk_crc() const { return disk_crc_; }

  // Files to sync so that all entries are durable; set_durable() with the end_lsn() of that moment
  // tells that they are.
  std::vector<std::shared_ptr<io::File>> unsynced_files();
  void set_durable(uint64_t lsn);

  // Segments before the one in use since the last release(), oldest first.
  const std::vector<ClosedSegment>& closed() const { return closed_; }
  // Segments before this one are not needed any more, also not after a power loss.
  void release(uint64_t sequence);

 private:
  std::string path_of(uint32_t slot) const;
  Result<void> find_segments();
  Result<uint64_t> read_durable_lsn(uint64_t sequence);
  Error lost(uint64_t lsn) const;
  Result<std::shared_ptr<io::File>> open_slot(uint32_t slot);
  Result<void> reserve(io::File& file);
  Result<void> clear_torn();

  io::Disk& disk_;
  const std::string dir_;
  const uint32_t disk_crc_;
  Rng& rng_;
  const uint64_t segment_bytes_;

  std::map<uint32_t, uint64_t> slots_;  // number of the file -> sequence of its segment, 0: free
  struct Segment {
    uint64_t sequence = 0;
    std::shared_ptr<io::File> file;
  };
  std::map<uint64_t, Segment> segments_;  // by first LSN: not released, with the one in use
  std::vector<ClosedSegment> closed_;
  uint64_t next_sequence_ = 1;
  uint64_t end_lsn_ = 0;
  uint64_t durable_lsn_ = 0;

  uint32_t slot_ = 0;  // of the segment in use
  SegmentHeader header_;
  std::shared_ptr<io::File> file_;  // null before the first rotate()
  std::vector<std::shared_ptr<io::File>> unsynced_;
  bool has_space_ = false;
  bool torn_ = false;  // a write has failed at the end of the log
};

}  // namespace ff::chunk
