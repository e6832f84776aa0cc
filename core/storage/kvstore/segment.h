// One file of a partition: records that were appended, and later their index (record.h). A segment
// that is written has its final length from the start, as a hole, so that a reader needs no length
// that a dead writer has not reported; its records end where no record follows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/kvstore/record.h"

namespace ff::kvstore {

struct SegmentName {
  uint64_t epoch = 0;   // of the owner that wrote it
  uint64_t number = 0;  // grows through all epochs
  friend auto operator<=>(const SegmentName&, const SegmentName&) = default;
};
std::string segment_file(SegmentName name);  // "seg-EPOCH-NUMBER", both in hex
std::optional<SegmentName> parse_segment_file(std::string_view name);
// A number in the name of a file.
std::optional<uint64_t> parse_hex(std::string_view digits);

// Of an open segment, by the partition that has it.
struct Segment {
  SegmentName name = {};
  std::string path = {};
  std::shared_ptr<io::File> file = {};  // reads under way keep it open when the file is removed
  uint64_t end = 0;                     // behind the last valid record
  uint64_t synced = 0;                  // what lies before is durable
  uint64_t live_bytes = 0;              // of records that the index points to
  bool sync_failed = false;  // the disk may have dropped unsynced bytes: write them again
  bool sealed = false;       // has a footer
  bool seal_tried = false;   // once; the next owner tries again
  // A failed append may have left bytes behind `end`, which the header of the next segment says:
  // that one must stay as long as this one, and no footer may replace those bytes, since another
  // process that claims the partition may have read them.
  bool bounded = false;
  bool damaged = false;  // not compacted: it keeps what can still be read
};

// Creates the file with its header, durably, with room for `bytes`.
Task<Result<std::unique_ptr<Segment>>> create_segment(io::Disk& disk, io::AsyncQueue& queue,
                                                      const std::string& dir, SegmentHead header,
                                                      uint64_t bytes);

// A window on a file that moves forward with a scan and reads in large pieces.
class ScanWindow {
 public:
  // `piece`: of the first read; each further one may be twice as large, up to 1 MiB.
  ScanWindow(io::AsyncQueue& queue, io::File& file, uint64_t limit, uint64_t piece = kMiB)
      : queue_(queue), file_(file), limit_(limit), piece_(piece) {}

  // The bytes from `offset` on that are in memory, after fill().
  ByteView at(uint64_t offset) const;
  // Reads on, so that at least `need` bytes are at `offset`, which never decreases. False: there
  // are not so many before the limit and the end of the file.
  Task<Result<bool>> fill(uint64_t offset, uint64_t need);

 private:
  io::AsyncQueue& queue_;
  io::File& file_;
  const uint64_t limit_;
  uint64_t piece_;
  uint64_t begin_ = 0;
  std::string bytes_;
};

// What a segment contains.
struct SegmentIndex {
  std::vector<IndexedRecord> records;
  uint64_t end = 0;                 // behind the last record
  uint64_t intact_end = 0;          // behind the last change before damage
  bool sealed = false;              // from a footer
  std::vector<std::string> damage;  // one sentence each
};
// Reads the footer, or all records. `limit`: the valid bytes, where known; records behind are
// ignored.
Task<Result<SegmentIndex>> read_index(io::AsyncQueue& queue, Loop& loop, const Segment& segment,
                                      std::string_view secret, uint64_t limit);
// The records from `from` on, where a change begins, without the footer.
Task<Result<SegmentIndex>> read_growth(io::AsyncQueue& queue, Loop& loop, const Segment& segment,
                                       std::string_view secret, uint64_t from, uint64_t limit);
Task<Result<SegmentHead>> read_header(io::AsyncQueue& queue, const Segment& segment);

// Makes all bytes of the segment durable, also after a sync that has failed.
Task<Result<void>> sync_segment(io::AsyncQueue& queue, Segment& segment);
// Adds the footer to a segment to which nobody appends any more. A failure does no harm.
Task<Result<void>> seal_segment(io::AsyncQueue& queue, Loop& loop, Segment& segment,
                                std::string_view secret);

}  // namespace ff::kvstore
