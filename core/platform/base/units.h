// Parses and formats human-readable sizes and durations. Sizes are plain bytes, `K M G T` and
// `KiB MiB GiB TiB` (binary, as in nccl-tests) or `KB MB GB TB` (decimal), likewise P and E, in
// upper or lower case; durations are `500ms 30s 5m 2h 7d`. The parsers accept what the format
// functions print, except durations of two units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff {

// "4M" -> 4194304. Fractions ("1.5G") are rounded down to a whole byte. Errc::usage for a fraction
// without a unit and for negative, empty, overflowing or unknown text.
Result<uint64_t> parse_size(std::string_view text);
// 195035136 -> "186MiB": three significant digits, binary units; "0B", "17B", "1.50GiB".
std::string format_size(uint64_t bytes);
// Bytes per second -> "2.31GiB/s".
std::string format_rate(double bytes_per_second);

// "5m" -> 300 s in nanoseconds. A plain number is in seconds; fractions ("1.5h", "0.2") are
// allowed. Errc::usage for negative, empty or unknown text and for more than 100 years (of 365
// days).
Result<int64_t> parse_duration_ns(std::string_view text);
// "250us", "12ms", "1.2s", "3m04s", "2h10m", "7d": at most two units, rounded to the last one.
std::string format_duration(int64_t ns);

// UTC, "2026-11-21T01:33:00Z".
std::string format_time(int64_t wall_ns);
// 1234567 -> "1,234,567".
std::string format_count(uint64_t count);

}  // namespace ff
