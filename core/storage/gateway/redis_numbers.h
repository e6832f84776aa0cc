// Numbers as Redis reads and prints them: strict decimal integers, and long doubles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ff::gateway {

// Fills the whole text; no sign '+', no leading zeros, no spaces, no overflow.
std::optional<int64_t> parse_integer(std::string_view text);

// A decimal or hexadecimal number that fills the text, or "inf"; not a NaN.
std::optional<long double> parse_real(std::string_view text);
// With at most 17 digits behind the point and no trailing zeros.
std::string format_real(long double value);

// Whether `name` matches a pattern of KEYS and SCAN: `*` any bytes, `?` one, `[a-z]` and `[^a-z]` a
// class and its complement, `\` escapes.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace ff::gateway
