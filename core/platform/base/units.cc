// units.cc: parsing and formatting sizes, durations, times and counts.
//
// The parser represents a number as an integer scaled by a power of ten, never as floating point,
// so that "1.5G" and "0.1s" are exact. The formatter rounds before it chooses the unit, so that
// 1023.9 KiB becomes "1.00MiB" and 59.99 s becomes "1m00s", not "1024KiB" and "60.0s".
#include "platform/base/units.h"

#include <array>
#include <cmath>
#include <ctime>

#include "platform/base/clock.h"

namespace ff {
namespace {

using Wide = unsigned __int128;

// The number of digits of the largest 64-bit number. Digits (below 10^20) times a unit (at most
// 2^60) then fit into Wide.
constexpr size_t kMaxDigits = 20;

// A decimal number in front of a unit: digits / scale.
struct Decimal {
  Wide digits = 0;
  uint64_t scale = 1;
  std::string_view unit;  // what follows the number
  bool valid = false;
};

Decimal read_decimal(std::string_view text) {
  Decimal number;
  size_t significant = 0;  // digits after leading zeros
  size_t at = 0;
  bool fraction = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !fraction && at > 0) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    if (significant > 0 || c != '0') ++significant;
    if (significant > kMaxDigits || number.scale > UINT64_MAX / 10) return number;
    number.digits = number.digits * 10 + static_cast<unsigned>(c - '0');
    if (fraction) number.scale *= 10;
  }
  number.unit = text.substr(at);
  number.valid = at > 0 && text[at - 1] != '.';
  return number;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The number of bytes of a unit; 0 for an unknown unit.
uint64_t size_unit(std::string_view unit) {
  if (unit.empty() || (unit.size() == 1 && lower(unit[0]) == 'b')) return 1;
  constexpr std::string_view kPrefixes = "kmgtpe";
  const size_t power = kPrefixes.find(lower(unit[0]));
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = unit.substr(1);
  const bool binary = rest.empty() || (rest.size() == 2 && rest[0] == 'i' && lower(rest[1]) == 'b');
  const bool decimal = rest.size() == 1 && lower(rest[0]) == 'b';
  if (!binary && !decimal) return 0;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= decimal ? 1000 : 1024;
  return bytes;
}

constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kMaxDuration = 100 * 365 * kDay;  // so that now + duration fits in 64 bits

int64_t duration_unit(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us") return kMicrosecond;
  if (unit == "ms") return kMillisecond;
  if (unit.empty() || unit == "s") return kSecond;
  if (unit == "m" || unit == "min") return kMinute;
  if (unit == "h") return kHour;
  if (unit == "d") return kDay;
  return 0;
}

// Three significant digits in the largest binary unit that leaves at least 1 before the point.
std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 7> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (!(bytes > 0)) return "0B";
  size_t unit = 0;
  while (unit + 1 < kNames.size() && bytes >= 1023.5) {
    bytes /= 1024;
    ++unit;
  }
  int decimals = 2;
  if (unit == 0 || bytes >= 99.95) {
    decimals = 0;
  } else if (bytes >= 9.995) {
    decimals = 1;
  }
  return fmt::format("{:.{}f}{}", bytes, decimals, kNames[unit]);
}

uint64_t round_to(uint64_t value, int64_t unit) {
  const auto u = static_cast<uint64_t>(unit);
  return (value + u / 2) / u;
}

// "3m04s" from whole `small` units, `ratio` of which make one `big`; "3m" for a multiple of it.
std::string two_units(uint64_t small, uint64_t ratio, const char* big_name,
                      const char* small_name) {
  if (small % ratio == 0) return fmt::format("{}{}", small / ratio, big_name);
  return fmt::format("{}{}{:02}{}", small / ratio, big_name, small % ratio, small_name);
}

std::string format_span(uint64_t ns) {
  if (ns < 1000) return ns == 0 ? "0s" : fmt::format("{}ns", ns);
  if (round_to(ns, kMicrosecond) < 1000) return fmt::format("{}us", round_to(ns, kMicrosecond));
  if (round_to(ns, kMillisecond) < 1000) return fmt::format("{}ms", round_to(ns, kMillisecond));
  if (const uint64_t tenths = round_to(ns, kSecond / 10); tenths < 600) {
    if (tenths % 10 == 0) return fmt::format("{}s", tenths / 10);
    return fmt::format("{}.{}s", tenths / 10, tenths % 10);
  }
  if (const uint64_t s = round_to(ns, kSecond); s < 3600) return two_units(s, 60, "m", "s");
  if (const uint64_t m = round_to(ns, kMinute); m < 24 * 60) return two_units(m, 60, "h", "m");
  return two_units(round_to(ns, kHour), 24, "d", "h");
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  const Decimal number = read_decimal(text);
  const uint64_t unit = number.valid ? size_unit(number.unit) : 0;
  if (unit == 0 || (unit == 1 && number.scale > 1)) {
    return Error{Errc::usage, fmt::format("'{}' is not a size", text),
                 "Write bytes or a number with a unit: 4096, 64K, 1.5GiB, 10GB."};
  }
  const Wide bytes = number.digits * unit / number.scale;
  if (bytes > UINT64_MAX) {
    return Error{Errc::usage, fmt::format("the size '{}' is too large", text),
                 "The largest is 16EiB less one byte."};
  }
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string format_rate(double bytes_per_second) {
  return format_bytes(std::isfinite(bytes_per_second) ? bytes_per_second : 0) + "/s";
}

Result<int64_t> parse_duration_ns(std::string_view text) {
  const Decimal number = read_decimal(text);
  const int64_t unit = number.valid ? duration_unit(number.unit) : 0;
  if (unit == 0) {
    return Error{Errc::usage, fmt::format("'{}' is not a duration", text),
                 "Write seconds or a number with a unit: 500ms, 30s, 5m, 2h, 7d."};
  }
  const Wide ns = number.digits * static_cast<uint64_t>(unit) / number.scale;
  if (ns > static_cast<Wide>(kMaxDuration)) {
    return Error{Errc::usage, fmt::format("the duration '{}' is too long", text),
                 "The longest is 100 years (36500d)."};
  }
  return static_cast<int64_t>(ns);
}

std::string format_duration(int64_t ns) {
  if (ns < 0) return "-" + format_span(uint64_t{0} - static_cast<uint64_t>(ns));
  return format_span(static_cast<uint64_t>(ns));
}

std::string format_time(int64_t wall_ns) {
  int64_t seconds = wall_ns / kSecond;
  if (wall_ns % kSecond < 0) --seconds;  // round down before 1970, too
  const std::time_t when = seconds;
  std::tm utc{};
  gmtime_r(&when, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string format_count(uint64_t count) {
  std::string text = fmt::to_string(count);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace ff
