// What a rank prints, in files: whole lines, each with its time in front.
//
//   2026-11-23T14:03:39.123456Z step 12 loss 0.31          a line, or the first piece of one
//   2026-11-23T14:03:39.123502+00:00 the rest of it        goes on with the line before it
//   2026-11-23T14:03:40.000117-00:00 ff: 5120 bytes ...    the shim's own words
//
// All three are UTC (RFC 3339): the offset tells which it is, and no byte of the output is changed
// or can be mistaken for it. A line is cut after kPiece bytes, and where its program has waited for
// a second in the middle of it.
//
// When a file is full the next one begins, with the number of bytes that all before it had in a
// line of the shim's own: so a reader can count them, though the oldest files are removed.
//
//   2026-11-23T14:08:11.480021-00:00 ff: here begins byte 2097150
//
// There is a limit to the bytes a second, to the size of a file and to the number of files, so the
// disk that a rank takes is bounded. What is over the limit, or does not fit onto a full disk, is
// dropped and counted, and a line tells how much it was: a log never keeps a rank waiting. The
// file's time of modification is that of the last output, also where that was dropped.
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

constexpr size_t kPiece = 16 * kKiB;
constexpr int64_t kUnendedNs = kSecond;  // how long a line may stay without its end

class RankLog {
 public:
  RankLog(io::Disk& disk, Clock& clock, LogLimits limits);

  void hear(std::string_view bytes);
  // To be called at next_ns(), or later.
  void tick();
  std::optional<int64_t> next_ns() const;  // Clock::steady_ns()
  // A line of the shim's own.
  void say(std::string_view text);
  // What is left, at the end.
  void finish();
  uint64_t dropped() const { return dropped_; }  // bytes of output

 private:
  enum class Mark : uint8_t { begins, continues, own };

  void look_at_clocks();
  void end_line();
  void emit(std::string_view piece, bool ends);
  bool within_rate(uint64_t cost);
  // Into out_. False: it does not get into the file.
  bool put(std::string_view piece, Mark mark);
  void drop(uint64_t bytes);
  void tell_losses();
  void tell(uint64_t bytes, uint64_t& told, std::string_view why);
  bool flush();
  void broken(Error error);
  Result<void> make_room(uint64_t bytes);
  Result<void> append();
  Result<void> open_file();
  Result<void> rotate();
  int64_t allowed_ns() const;

  io::Disk& disk_;
  Clock& clock_;
  const LogLimits limits_;
  std::unique_ptr<io::File> file_;
  uint64_t size_ = 0;    // of it
  uint64_t before_ = 0;  // bytes of all files before it

  int64_t now_ns_ = 0;  // steady
  std::string time_;    // of the wall, without an offset

  std::string line_;           // of the last line, what is not written yet
  int64_t line_since_ns_ = 0;  // its first byte
  bool continues_ = false;     // a piece of it was written, or dropped
  std::string out_;            // on its way to the file
  uint64_t out_output_ = 0;    // bytes of it that are the rank's

  double allowance_;             // bytes that may be written now
  bool over_rate_ = false;       // nothing is written until half of the burst is free again
  int64_t broken_until_ns_ = 0;  // the disk took nothing: not tried again before
  std::string why_broken_;
  uint64_t dropped_ = 0;
  uint64_t untold_rate_ = 0, untold_disk_ = 0;  // bytes of these that no line tells of yet
  uint64_t told_rate_ = 0, told_disk_ = 0;      // bytes of those that a line in out_ tells of
  int64_t touched_ns_ = 0;                      // the file's time, when output was dropped
};

// One line of such a file, without its newline.
struct LogLine {
  std::string_view time;  // "2026-11-23T14:03:39.123456", UTC
  bool continues = false, own = false;
  std::string_view text;
};
// Nothing: it is none (a machine that lost its power may leave such).
std::optional<LogLine> parse_log_line(std::string_view line);
// How many bytes come before a file that begins with this line. Nothing: it does not say.
std::optional<uint64_t> bytes_before(std::string_view first_line);

}  // namespace ff::shim
