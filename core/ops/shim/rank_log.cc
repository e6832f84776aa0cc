// rank_log.cc: lines, rate limit, files.
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
constexpr std::string_view kFilePreamble = "ff: here begins byte ";
constexpr size_t kBufferBytesMax = 256 * kKiB;
constexpr int64_t kRetryNs = kSecond;  // after a disk error, and between two updates of the mtime

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

void RankLog::update_clock() {
  const int64_t before_ns = std::exchange(now_ns_, clock_.steady_ns());
  const double seconds = static_cast<double>(now_ns_ - before_ns) / kSecond;
  allowance_ = std::min(static_cast<double>(limits_.burst),
                        allowance_ + seconds * static_cast<double>(limits_.rate));
  time_ = time_text(clock_.wall_ns());
}

void RankLog::write(std::string_view bytes) {
  update_clock();
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t taken = std::min(end, kLineChunkBytes - line_.size());
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
  // All of it may be written already, except for the newline, which every part has.
  if (line_.empty() && continues_) {
    continues_ = false;
  } else {
    emit(line_, true);
  }
}

void RankLog::emit(std::string_view piece, bool ends) {
  const LineKind kind = std::exchange(continues_, !ends) ? LineKind::continues : LineKind::begins;
  const uint64_t bytes = piece.size() + (ends ? 1 : 0);
  if (now_ns_ < retry_at_ns_) {
    unreported_disk_ += bytes;
    drop(bytes);
  } else if (!within_rate(piece.size() + kFrameBytes)) {
    unreported_rate_ += bytes;
    drop(bytes);
  } else {
    report_drops();
    if (buffer_line(piece, kind)) {
      buffered_output_ += bytes;
    } else {
      unreported_disk_ += bytes;
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
  // The mtime shows that the rank is not silent.
  if (mtime_set_ns_ != 0 && now_ns_ - mtime_set_ns_ < kRetryNs) return;
  mtime_set_ns_ = now_ns_;
  (void)disk_.set_mtime(limits_.path, -1);
}

bool RankLog::buffer_line(std::string_view piece, LineKind kind) {
  auto room = make_room(piece.size() + kFrameBytes);
  if (!room) {
    disk_failed(std::move(room).error());
    return false;
  }
  const auto add = [this](LineKind of, std::string_view text) {
    buffer_ += time_;
    buffer_ += kOffsets[static_cast<size_t>(of)];
    buffer_ += ' ';
    buffer_ += text;
    buffer_ += '\n';
  };
  if (before_ > 0 && size_ + buffer_.size() == 0) {
    add(LineKind::own, fmt::format("{}{}", kFilePreamble, before_));
  }
  add(kind, piece);
  return buffer_.size() < kBufferBytesMax || flush();
}

// Losses. -----------------------------------------------------------------------------------------

void RankLog::report_drops() {
  if (unreported_rate_ == reported_rate_ && unreported_disk_ == reported_disk_) return;
  report_drop(unreported_rate_, reported_rate_,
              fmt::format("more than {}", format_rate(static_cast<double>(limits_.rate))));
  report_drop(unreported_disk_, reported_disk_, disk_error_);
}

void RankLog::report_drop(uint64_t bytes, uint64_t& reported, std::string_view why) {
  if (bytes == reported) return;
  const std::string line =
      fmt::format("ff: {} bytes of output were dropped here: {}", bytes - reported, why);
  if (buffer_line(line, LineKind::own)) reported = bytes;
}

void RankLog::disk_failed(Error error) {
  disk_error_ = std::move(error.message);
  retry_at_ns_ = now_ns_ + kRetryNs;
  file_.reset();  // reopened on the next write
}

void RankLog::write_own_line(std::string_view text) {
  update_clock();
  if (now_ns_ >= retry_at_ns_) (void)buffer_line(text, LineKind::own);
  (void)flush();
}

int64_t RankLog::retry_ns() const {
  int64_t when_ns = retry_at_ns_;
  if (over_rate_) {
    const double missing = static_cast<double>(limits_.burst) / 2 - allowance_;
    const double seconds = std::max(0.0, missing / static_cast<double>(limits_.rate));
    when_ns = std::max(when_ns, now_ns_ + static_cast<int64_t>(seconds * kSecond) + kMillisecond);
  }
  return when_ns;
}

std::optional<int64_t> RankLog::next_ns() const {
  std::optional<int64_t> next;
  if (!line_.empty()) next = line_since_ns_ + kPartialLineNs;
  if (unreported_rate_ + unreported_disk_ > 0) {
    next = std::min(next.value_or(INT64_MAX), retry_ns());
  }
  return next;
}

void RankLog::tick() {
  update_clock();
  if (!line_.empty() && now_ns_ >= line_since_ns_ + kPartialLineNs) {
    emit(line_, false);
    line_.clear();
  }
  if (over_rate_) (void)within_rate(0);
  if (!over_rate_ && now_ns_ >= retry_at_ns_) report_drops();
  (void)flush();
}

void RankLog::finish() {
  update_clock();
  retry_at_ns_ = 0;  // the last attempt
  if (!line_.empty()) emit(line_, false);
  line_.clear();
  if (now_ns_ >= retry_at_ns_) report_drops();
  (void)flush();
}

// Files. ------------------------------------------------------------------------------------------

bool RankLog::flush() {
  if (buffer_.empty()) return true;
  auto written = append();
  if (written) {
    unreported_rate_ -= reported_rate_;
    unreported_disk_ -= reported_disk_;
  } else {
    unreported_disk_ += buffered_output_;
    drop(buffered_output_);
    disk_failed(std::move(written).error());
  }
  reported_rate_ = reported_disk_ = buffered_output_ = 0;
  buffer_.clear();
  return written.ok();
}

Result<void> RankLog::make_room(uint64_t bytes) {
  if (file_ == nullptr) FF_TRY(open_file());
  if (size_ + buffer_.size() == 0 || size_ + buffer_.size() + bytes <= limits_.file_bytes)
    return {};
  if (!flush()) return fail(Errc::failed, "{}", disk_error_);
  return rotate();
}

Result<void> RankLog::append() {
  auto written = file_->write_at(as_bytes(buffer_), size_);
  if (written) size_ += buffer_.size();
  // Remove the incomplete line.
  if (!written) (void)file_->truncate(size_);
  return written;
}

Result<void> RankLog::open_file() {
  FF_TRY(auto file, disk_.open(limits_.path, {.access = io::AccessMode::read_write,
                                              .create = true,
                                              .no_follow = true,
                                              .mode = 0600}));
  FF_TRY(const auto info, file->info());
  size_ = info.size;
  if (size_ > 0) {
    std::byte last = {};
    FF_TRY(file->read_at({&last, 1}, size_ - 1));
    // A killed shim has left an incomplete line.
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

std::optional<RankLogLine> parse_rank_log_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == line.npos || blank <= kTimeBytes) return std::nullopt;
  for (size_t kind = 0; kind < std::size(kOffsets); kind++) {
    if (line.substr(kTimeBytes, blank - kTimeBytes) != kOffsets[kind]) continue;
    return RankLogLine{.time = line.substr(0, kTimeBytes),
                       .continues = kind == 1,
                       .own = kind == 2,
                       .text = line.substr(blank + 1)};
  }
  return std::nullopt;
}

std::optional<uint64_t> bytes_before(std::string_view first_line) {
  const auto line = parse_rank_log_line(first_line);
  if (!line || !line->own || !line->text.starts_with(kFilePreamble)) return std::nullopt;
  return parse_u64(line->text.substr(kFilePreamble.size()));
}

}  // namespace ff::shim
