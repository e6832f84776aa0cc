// rank_log.cc: lines, allowances, files.
#include "ops/shim/rank_log.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::shim {
namespace {

constexpr std::string_view kOffsets[] = {"Z", "+00:00", "-00:00"};  // by Mark
constexpr size_t kTimeBytes = 26;                                   // "2026-11-23T14:03:39.123456"
constexpr size_t kFrameBytes = kTimeBytes + 6 + 2;                  // offset, blank, newline
constexpr std::string_view kBegins = "ff: here begins byte ";
constexpr size_t kOutMax = 256 * kKiB;
constexpr int64_t kPauseNs = kSecond;  // of a disk that takes nothing, and between two touches

std::string time_text(int64_t wall_ns) {
  const time_t seconds = wall_ns / kSecond;
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     wall_ns % kSecond / kMicrosecond);
}

}  // namespace

RankLog::RankLog(io::Disk& disk, Clock& clock, LogLimits limits)
    : disk_(disk),
      clock_(clock),
      limits_(std::move(limits)),
      allowance_(static_cast<double>(limits_.burst)) {
  now_ns_ = clock_.steady_ns();
}

void RankLog::look_at_clocks() {
  const int64_t before_ns = std::exchange(now_ns_, clock_.steady_ns());
  const double seconds = static_cast<double>(now_ns_ - before_ns) / kSecond;
  allowance_ = std::min(static_cast<double>(limits_.burst),
                        allowance_ + seconds * static_cast<double>(limits_.rate));
  time_ = time_text(clock_.wall_ns());
}

void RankLog::hear(std::string_view bytes) {
  look_at_clocks();
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t taken = std::min(end, kPiece - line_.size());
    if (line_.empty()) line_since_ns_ = now_ns_;
    line_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (bytes.empty()) break;
    if (taken == end) {
      bytes.remove_prefix(1);
      end_line();
    } else {
      emit(line_, false);
    }
    line_.clear();
  }
  (void)flush();
}

void RankLog::end_line() {
  // All of it may be written, but for the newline that every piece has anyway.
  if (line_.empty() && continues_) {
    continues_ = false;
  } else {
    emit(line_, true);
  }
}

void RankLog::emit(std::string_view piece, bool ends) {
  const Mark mark = std::exchange(continues_, !ends) ? Mark::continues : Mark::begins;
  const uint64_t bytes = piece.size() + (ends ? 1 : 0);
  if (now_ns_ < broken_until_ns_) {
    untold_disk_ += bytes;
    drop(bytes);
  } else if (!within_rate(piece.size() + kFrameBytes)) {
    untold_rate_ += bytes;
    drop(bytes);
  } else {
    tell_losses();
    if (put(piece, mark)) {
      out_output_ += bytes;
    } else {
      untold_disk_ += bytes;
      drop(bytes);
    }
  }
}

bool RankLog::within_rate(uint64_t cost) {
  if (limits_.rate == 0) return true;
  const auto bytes = static_cast<double>(cost);
  if (over_rate_) over_rate_ = allowance_ < static_cast<double>(limits_.burst) / 2;
  if (!over_rate_) over_rate_ = allowance_ < bytes;
  if (!over_rate_) allowance_ -= bytes;
  return !over_rate_;
}

void RankLog::drop(uint64_t bytes) {
  dropped_ += bytes;
  // Whoever looks for ranks that have fallen silent shall not find this one.
  if (touched_ns_ != 0 && now_ns_ - touched_ns_ < kPauseNs) return;
  touched_ns_ = now_ns_;
  (void)disk_.set_mtime(limits_.path, -1);
}

bool RankLog::put(std::string_view piece, Mark mark) {
  auto room = make_room(piece.size() + kFrameBytes);
  if (!room) {
    broken(std::move(room).error());
    return false;
  }
  const auto add = [this](Mark of, std::string_view text) {
    out_ += time_;
    out_ += kOffsets[static_cast<size_t>(of)];
    out_ += ' ';
    out_ += text;
    out_ += '\n';
  };
  if (before_ > 0 && size_ + out_.size() == 0) {
    add(Mark::own, fmt::format("{}{}", kBegins, before_));
  }
  add(mark, piece);
  return out_.size() < kOutMax || flush();
}

// Losses. -----------------------------------------------------------------------------------------

void RankLog::tell_losses() {
  if (untold_rate_ == told_rate_ && untold_disk_ == told_disk_) return;
  tell(untold_rate_, told_rate_,
       fmt::format("more than {}", format_rate(static_cast<double>(limits_.rate))));
  tell(untold_disk_, told_disk_, why_broken_);
}

void RankLog::tell(uint64_t bytes, uint64_t& told, std::string_view why) {
  if (bytes == told) return;
  const std::string line =
      fmt::format("ff: {} bytes of output were dropped here: {}", bytes - told, why);
  if (put(line, Mark::own)) told = bytes;
}

void RankLog::broken(Error error) {
  why_broken_ = std::move(error.message);
  broken_until_ns_ = now_ns_ + kPauseNs;
  file_.reset();  // opened anew
}

void RankLog::say(std::string_view text) {
  look_at_clocks();
  if (now_ns_ >= broken_until_ns_) (void)put(text, Mark::own);
  (void)flush();
}

int64_t RankLog::allowed_ns() const {
  int64_t when_ns = broken_until_ns_;
  if (over_rate_) {
    const double missing = static_cast<double>(limits_.burst) / 2 - allowance_;
    const double seconds = std::max(0.0, missing / static_cast<double>(limits_.rate));
    when_ns = std::max(when_ns, now_ns_ + static_cast<int64_t>(seconds * kSecond) + kMillisecond);
  }
  return when_ns;
}

std::optional<int64_t> RankLog::next_ns() const {
  std::optional<int64_t> next;
  if (!line_.empty()) next = line_since_ns_ + kUnendedNs;
  if (untold_rate_ + untold_disk_ > 0) {
    next = std::min(next.value_or(INT64_MAX), allowed_ns());
  }
  return next;
}

void RankLog::tick() {
  look_at_clocks();
  if (!line_.empty() && now_ns_ >= line_since_ns_ + kUnendedNs) {
    emit(line_, false);
    line_.clear();
  }
  if (over_rate_) (void)within_rate(0);
  if (!over_rate_ && now_ns_ >= broken_until_ns_) tell_losses();
  (void)flush();
}

void RankLog::finish() {
  look_at_clocks();
  broken_until_ns_ = 0;  // the last try
  if (!line_.empty()) emit(line_, false);
  line_.clear();
  if (now_ns_ >= broken_until_ns_) tell_losses();
  (void)flush();
}

// Files. ------------------------------------------------------------------------------------------

bool RankLog::flush() {
  if (out_.empty()) return true;
  auto written = append();
  if (written) {
    untold_rate_ -= told_rate_;
    untold_disk_ -= told_disk_;
  } else {
    untold_disk_ += out_output_;
    drop(out_output_);
    broken(std::move(written).error());
  }
  told_rate_ = told_disk_ = out_output_ = 0;
  out_.clear();
  return written.ok();
}

Result<void> RankLog::make_room(uint64_t bytes) {
  if (file_ == nullptr) FF_TRY(open_file());
  if (size_ + out_.size() == 0 || size_ + out_.size() + bytes <= limits_.file_bytes) return {};
  if (!flush()) return fail(Errc::failed, "{}", why_broken_);
  return rotate();
}

Result<void> RankLog::append() {
  auto written = file_->write_at(as_bytes(out_), size_);
  if (written) size_ += out_.size();
  // What got there is no whole line.
  if (!written) (void)file_->truncate(size_);
  return written;
}

Result<void> RankLog::open_file() {
  FF_TRY(auto file,
         disk_.open(
             limits_.path,
             {.access = io::Access::read_write, .create = true, .no_follow = true, .mode = 0600}));
  FF_TRY(const auto info, file->info());
  size_ = info.size;
  if (size_ > 0) {
    std::byte last = {};
    FF_TRY(file->read_at({&last, 1}, size_ - 1));
    // A shim that was killed has left half a line there.
    if (last != std::byte{'\n'}) {
      FF_TRY(file->write_at(as_bytes("\n"), size_));
      size_++;
    }
  }
  file_ = std::move(file);
  return {};
}

Result<void> RankLog::rotate() {
  file_.reset();
  const auto name = [this](uint64_t age) {
    return age == 0 ? limits_.path : fmt::format("{}.{}", limits_.path, age);
  };
  for (uint64_t age = limits_.files - 1; age > 0; age--) {
    auto renamed = disk_.rename(name(age - 1), name(age));
    if (!renamed && renamed.error().code != Errc::not_found) return renamed;
  }
  if (limits_.files == 1) FF_TRY(disk_.remove(limits_.path));
  before_ += size_;
  return open_file();
}

std::optional<LogLine> parse_log_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == line.npos || blank <= kTimeBytes) return std::nullopt;
  for (size_t mark = 0; mark < std::size(kOffsets); mark++) {
    if (line.substr(kTimeBytes, blank - kTimeBytes) != kOffsets[mark]) continue;
    return LogLine{.time = line.substr(0, kTimeBytes),
                   .continues = mark == 1,
                   .own = mark == 2,
                   .text = line.substr(blank + 1)};
  }
  return std::nullopt;
}

std::optional<uint64_t> bytes_before(std::string_view first_line) {
  const auto line = parse_log_line(first_line);
  if (!line || !line->own || !line->text.starts_with(kBegins)) return std::nullopt;
  return parse_u64(line->text.substr(kBegins.size()));
}

}  // namespace ff::shim
