// The log files of the output of a rank: whole lines, each with a timestamp.
//
//   2026-11-23T14:03:39.123456Z step 12 loss 0.31          a line, or the first part of one
//   2026-11-23T14:03:39.123502+00:00 the rest of it        continues the line before it
//   2026-11-23T14:03:40.000117-00:00 ff: 5120 bytes ...    a message of the shim
//
// All three are UTC (RFC 3339): the form of the offset tells the kind of the line, and no byte of
// the output is changed or can be mistaken for it. A line is split after kLineChunkBytes, and where
// its program pauses for a second in the middle of it.
//
// When a file is full the next one begins with a message that states how many bytes all earlier
// files had, so offsets stay valid although the oldest files are removed.
//
//   2026-11-23T14:08:11.480021-00:00 ff: here begins byte 2097150
//
// Rate, file size and number of files are limited, so the disk space of a rank is bounded. Output
// beyond the limits, or that does not fit onto a full disk, is dropped and counted, and a message
// states how much: the log never blocks the rank. The mtime of the file is the time of the last
// output, also of dropped output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ops/shim/launch.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

constexpr size_t kLineChunkBytes = 16 * kKiB;
constexpr int64_t kPartialLineNs = kSecond;  // maximum delay of a line without a newline

class RankLog {
 public:
  RankLog(io::Disk& disk, Clock& clock, LogLimits limits);

  void write(std::string_view bytes);
  // Call it at next_ns() or later.
  void tick();
  std::optional<int64_t> next_ns() const;  // Clock::steady_ns()
  // Writes a message of the shim.
  void write_own_line(std::string_view text);
  // Writes the rest; call it last.
  void finish();
  uint64_t dropped() const { return dropped_; }  // bytes of output

 private:
  enum class LineKind : uint8_t { begins, continues, own };

  void update_clock();
  void end_line();
  void emit(std::string_view piece, bool ends);
  bool within_rate(uint64_t cost);
  // Appends a line to buffer_. False: the file takes no more.
  bool buffer_line(std::string_view piece, LineKind kind);
  void drop(uint64_t bytes);
  void report_drops();
  void report_drop(uint64_t bytes, uint64_t& reported, std::string_view why);
  bool flush();
  void disk_failed(Error error);
  Result<void> make_room(uint64_t bytes);
  Result<void> append();
  Result<void> open_file();
  Result<void> rotate();
  int64_t retry_ns() const;

  io::Disk& disk_;
  Clock& clock_;
  const LogLimits limits_;
  std::unique_ptr<io::File> file_;
  uint64_t size_ = 0;    // of file_
  uint64_t before_ = 0;  // bytes of all earlier files

  int64_t now_ns_ = 0;  // steady
  std::string time_;    // wall time, without the offset

  std::string line_;              // the unwritten part of the current line
  int64_t line_since_ns_ = 0;     // arrival of its first byte
  bool continues_ = false;        // a part of the line was written or dropped
  std::string buffer_;            // lines to be written
  uint64_t buffered_output_ = 0;  // bytes of output in it

  double allowance_;         // token bucket: bytes that may be written now
  bool over_rate_ = false;   // drop output until half of the burst is available
  int64_t retry_at_ns_ = 0;  // next attempt after a disk error
  std::string disk_error_;
  uint64_t dropped_ = 0;
  uint64_t unreported_rate_ = 0,
           unreported_disk_ = 0;  // dropped bytes, not yet in a message of the file
  uint64_t reported_rate_ = 0, reported_disk_ = 0;  // of them, in a message of buffer_
  int64_t mtime_set_ns_ = 0;  // the last update of the mtime for dropped output
};

// One line of such a file, without its newline.
struct RankLogLine {
  std::string_view time;  // "2026-11-23T14:03:39.123456", UTC
  bool continues = false, own = false;
  std::string_view text;
};
// Nothing: malformed (possible after a power failure).
std::optional<RankLogLine> parse_rank_log_line(std::string_view line);
// The number of bytes before a file that begins with this line. Nothing: the line does not state
// it.
std::optional<uint64_t> bytes_before(std::string_view first_line);

}  // namespace ff::shim
