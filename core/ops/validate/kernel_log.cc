// kernel_log.cc: the line formats, distinguished by their first characters.
#include "ops/validate/kernel_log.h"

#include <ctime>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr uint64_t kKernelFacility = 0;
constexpr size_t kPart = kMiB;          // read at once
constexpr size_t kLineMax = 64 * kKiB;  // longer lines are ignored

void skip_spaces(std::string_view& text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
}

// The fraction of a number of seconds, as nanoseconds. Nothing: no digits, or too many.
std::optional<int64_t> fraction_ns(std::string_view digits) {
  constexpr size_t kMost = 9;
  auto number = parse_u64(digits);
  if (!number || digits.size() > kMost) return std::nullopt;
  for (size_t i = digits.size(); i < kMost; i++) *number *= 10;
  return static_cast<int64_t>(*number);
}

// "[12345.678901] rest": the time, and `text` is the rest.
std::optional<int64_t> parse_boot_time(std::string_view& text) {
  if (!text.starts_with('[')) return std::nullopt;
  const size_t close = text.find(']');
  if (close == text.npos) return std::nullopt;
  std::string_view stamp = text.substr(1, close - 1);
  skip_spaces(stamp);
  const size_t dot = stamp.find('.');
  const auto seconds = parse_u64(stamp.substr(0, dot));
  const auto part = dot == stamp.npos ? std::nullopt : fraction_ns(stamp.substr(dot + 1));
  if (!seconds || !part || *seconds > INT64_MAX / kSecond - 1) return std::nullopt;
  text.remove_prefix(close + 1);
  skip_spaces(text);
  return static_cast<int64_t>(*seconds) * kSecond + *part;
}

// Parses the beginning with strptime(3), in local time; `text` becomes the rest.
std::optional<int64_t> parse_seconds(std::string_view& text, const char* format, bool local,
                                     std::optional<int> year = std::nullopt) {
  const std::string head(text.substr(0, 64));
  std::tm parts = {};
  parts.tm_isdst = -1;
  if (year) parts.tm_year = *year - 1900;
  const char* const end = ::strptime(head.c_str(), format, &parts);
  if (end == nullptr) return std::nullopt;
  const long offset = parts.tm_gmtoff;
  const std::time_t seconds = local ? std::mktime(&parts) : ::timegm(&parts) - offset;
  if (seconds < 0 || seconds > INT64_MAX / kSecond - 86'400) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - head.c_str()));
  return static_cast<int64_t>(seconds) * kSecond;
}

// "2026-11-23T01:02:03.456789+00:00 rest".
std::optional<int64_t> parse_iso_time(std::string_view& text) {
  std::string_view rest = text;
  auto at = parse_seconds(rest, "%Y-%m-%dT%H:%M:%S", false);
  if (!at) return std::nullopt;
  if (rest.starts_with('.') || rest.starts_with(',')) {
    const size_t end = rest.find_first_not_of("0123456789", 1);
    const std::string_view digits = rest.substr(1, end == rest.npos ? rest.npos : end - 1);
    *at += fraction_ns(digits).value_or(0);
    rest.remove_prefix(end == rest.npos ? rest.size() : end);
  }
  if (rest.starts_with('Z')) {
    rest.remove_prefix(1);
  } else if (rest.starts_with('+') || rest.starts_with('-')) {
    const int64_t sign = rest.front() == '+' ? 1 : -1;
    constexpr size_t kShort = 5;  // "+0200"
    const bool colon = rest.size() > kShort && rest[3] == ':';
    if (rest.size() < kShort) return std::nullopt;
    const auto hours = parse_u64(rest.substr(1, 2));
    const auto minutes = parse_u64(rest.substr(colon ? 4 : 3, 2));
    if (!hours || !minutes) return std::nullopt;
    *at -= sign * static_cast<int64_t>(*hours * 3600 + *minutes * 60) * kSecond;
    rest.remove_prefix(colon ? 6 : 5);
  }
  if (!rest.starts_with(' ')) return std::nullopt;
  text = rest;
  return at;
}

// "Nov 23 01:02:03 rest": of this year, or of the last year if that would be in the future.
std::optional<int64_t> parse_syslog_time(std::string_view& text, int64_t now_ns) {
  const std::time_t now = now_ns / kSecond;
  std::tm today = {};
  ::localtime_r(&now, &today);
  for (const int year : {today.tm_year + 1900, today.tm_year + 1899}) {
    std::string_view rest = text;
    const auto at = parse_seconds(rest, "%b %d %H:%M:%S", true, year);
    if (!at) return std::nullopt;
    if (*at > now_ns + 86'400 * kSecond) continue;
    text = rest;
    return at;
  }
  return std::nullopt;
}

// A record of /dev/kmsg; without text if a program wrote it.
std::optional<KernelLogLine> parse_record(std::string_view record) {
  const size_t semicolon = record.find(';');
  if (semicolon == record.npos) return std::nullopt;
  const auto fields = split(record.substr(0, semicolon), ',');
  if (fields.size() < 4) return std::nullopt;
  const auto priority = parse_u64(fields[0]);
  const auto micros = parse_u64(fields[2]);
  if (!priority || !micros || *micros > INT64_MAX / kMicrosecond) return std::nullopt;
  KernelLogLine line{.boot_ns = static_cast<int64_t>(*micros) * kMicrosecond};
  if (*priority >> 3 != kKernelFacility) return line;
  const std::string_view text = record.substr(semicolon + 1);
  line.text = text.substr(0, text.find('\n'));
  return line;
}

// "Mon 2026-11-23 01:02:03 UTC rest". The zone is that of this machine, or UTC.
std::optional<int64_t> parse_full_time(std::string_view& text) {
  std::string_view rest = text;
  const size_t zone = rest.find(' ', 24);
  if (zone == rest.npos) return std::nullopt;
  const bool is_utc = rest.substr(0, zone).ends_with(" UTC");
  const auto at = parse_seconds(rest, "%a %Y-%m-%d %H:%M:%S", !is_utc);
  if (!at) return std::nullopt;
  text.remove_prefix(zone);
  return at;
}

// "1795435200.123456 rest".
std::optional<int64_t> parse_unix_time(std::string_view& text) {
  const std::string_view stamp = text.substr(0, text.find(' '));
  const size_t dot = stamp.find('.');
  constexpr size_t kDigits = 9;  // of seconds since the epoch, and more
  if (dot == stamp.npos || dot < kDigits || stamp.size() == text.size()) return std::nullopt;
  const auto seconds = parse_u64(stamp.substr(0, dot));
  const auto part = fraction_ns(stamp.substr(dot + 1));
  if (!seconds || !part || *seconds > INT64_MAX / kSecond - 1) return std::nullopt;
  text.remove_prefix(stamp.size());
  return static_cast<int64_t>(*seconds) * kSecond + *part;
}

std::optional<int64_t> parse_journal_time(std::string_view& text, int64_t now_ns) {
  if (const auto at = parse_iso_time(text)) return at;
  if (const auto at = parse_syslog_time(text, now_ns)) return at;
  if (const auto at = parse_full_time(text)) return at;
  return parse_unix_time(text);
}

// "<4>rest", "kern  :err   : rest".
void drop_level(std::string_view& line) {
  if (line.starts_with('<')) {
    const size_t close = line.find('>');
    if (close != line.npos && close <= 4) line.remove_prefix(close + 1);
  }
  constexpr std::string_view kDecoded = "kern  :";
  if (!line.starts_with(kDecoded)) return;
  const size_t end = line.find(": ", kDecoded.size());
  if (end != line.npos) line.remove_prefix(end + 2);
}

// " host kernel: rest" -> "rest"; nothing: another program wrote it (" host sshd[812]: …").
void drop_host(std::string_view& text) {
  constexpr std::string_view kKernel = " kernel: ";
  const size_t at = text.find(kKernel), other = text.find(": ");
  const bool is_kernel = at != text.npos && at + kKernel.size() == other + 2;
  text = is_kernel ? text.substr(other + 2) : std::string_view();
}

}  // namespace

KernelLogLine parse_kernel_log_line(std::string_view line, int64_t now_ns) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (auto record = parse_record(line)) return *std::move(record);
  KernelLogLine made;
  drop_level(line);
  if (line.starts_with('[')) {
    made.boot_ns = parse_boot_time(line);
    if (!made.boot_ns) {
      std::string_view rest = line.substr(1);
      made.wall_ns = parse_seconds(rest, "%a %b %d %H:%M:%S %Y", true);
      if (made.wall_ns && rest.starts_with(']')) line = rest.substr(1);
      skip_spaces(line);
    }
    constexpr std::string_view kKernel = " kernel: ";  // journalctl -o short-monotonic
    const size_t host = line.find(kKernel);
    if (made.boot_ns && host < line.find(' ') + 1) line.remove_prefix(host + kKernel.size());
  } else {
    // dmesg prints no host, and its fractions have a comma.
    const bool is_dmesg = line.substr(0, line.find(' ')).find(',') != line.npos;
    if (is_dmesg) {
      made.wall_ns = parse_iso_time(line);
      if (made.wall_ns) skip_spaces(line);
    } else if ((made.wall_ns = parse_journal_time(line, now_ns))) {
      drop_host(line);
      made.boot_ns = parse_boot_time(line);
    }
  }
  made.text = std::string(line);
  return made;
}

void ContinuationLines::join(KernelLogLine& line) {
  if (line.has_time() || !before_.has_time() || !line.text.starts_with(' ')) {
    before_ = line;
    return;
  }
  line.wall_ns = before_.wall_ns;
  line.boot_ns = before_.boot_ns;
  const size_t begin = line.text.find_first_not_of(' ');
  const bool is_kernel = !before_.text.empty() && begin != line.text.npos;
  line.text = is_kernel ? line.text.substr(begin) : "";
}

std::optional<KernelLogLine> parse_kmsg(std::string_view record) {
  auto line = parse_record(record);
  if (line && line->text.empty()) return std::nullopt;
  return line;
}

Result<void> read_log(io::Disk& disk, const std::string& path, int64_t now_ns,
                      const std::function<void(KernelLogLine)>& each) {
  FF_TRY(auto file, disk.open(path, {.access = io::AccessMode::read}));
  std::string part(kPart, '\0');
  std::string line;  // the incomplete last line
  ContinuationLines continuation;
  const auto end_line = [&] {
    if (!line.empty()) {
      KernelLogLine parsed = parse_kernel_log_line(line, now_ns);
      continuation.join(parsed);
      each(std::move(parsed));
    }
    line.clear();
  };
  for (uint64_t at = 0;;) {
    FF_TRY(const size_t got, file->read_at(std::as_writable_bytes(std::span(part)), at));
    if (got == 0) break;
    at += got;
    std::string_view rest = std::string_view(part).substr(0, got);
    for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      line.append(rest.substr(0, end));
      end_line();
      rest.remove_prefix(end + 1);
    }
    line.append(rest);
    if (line.size() > kLineMax) end_line();
  }
  end_line();
  return {};
}

}  // namespace ff::validate
