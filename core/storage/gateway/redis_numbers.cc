// redis_numbers.cc: strtold(3) and printf(3) for long doubles, which <charconv> lacks.
#include "storage/gateway/redis_numbers.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace ff::gateway {

namespace {

constexpr size_t kRealTextMax = 5 * 1024;  // Redis' MAX_LONG_DOUBLE_CHARS

// The class that begins behind its '['; moves `pattern` behind the class, or to its end if the
// class is not closed.
bool in_class(std::string_view& pattern, char c) {
  const bool complement = pattern.starts_with('^');
  if (complement) pattern.remove_prefix(1);
  bool found = false;
  while (!pattern.empty() && pattern.front() != ']') {
    if (pattern.front() == '\\' && pattern.size() >= 2) {
      found |= pattern[1] == c;
      pattern.remove_prefix(2);
    } else if (pattern.size() >= 3 && pattern[1] == '-') {
      auto first = static_cast<unsigned char>(pattern[0]);
      auto last = static_cast<unsigned char>(pattern[2]);
      if (first > last) std::swap(first, last);
      const auto byte = static_cast<unsigned char>(c);
      found |= byte >= first && byte <= last;
      pattern.remove_prefix(3);
    } else {
      found |= pattern.front() == c;
      pattern.remove_prefix(1);
    }
  }
  if (!pattern.empty()) pattern.remove_prefix(1);
  return found != complement;
}

// Matches one byte of the name, and moves `pattern` behind what matched it.
bool matches_one(std::string_view& pattern, char c) {
  const char first = pattern.front();
  pattern.remove_prefix(1);
  if (first == '?') return true;
  if (first == '[') return in_class(pattern, c);
  if (first != '\\' || pattern.empty()) return first == c;
  const char escaped = pattern.front();
  pattern.remove_prefix(1);
  return escaped == c;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits.front() == '0' && text.size() > 1)) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<long double> parse_real(std::string_view text) {
  if (text.empty() || text.size() >= kRealTextMax) return std::nullopt;
  if (std::isspace(static_cast<unsigned char>(text.front())) != 0) return std::nullopt;
  const std::string copy(text);  // with a NUL
  char* end = nullptr;
  const long double value = std::strtold(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || std::isnan(value)) return std::nullopt;
  return value;
}

std::string format_real(long double value) {
  std::array<char, kRealTextMax> text;
  const int written = std::snprintf(text.data(), text.size(), "%.17Lf", value);
  std::string out(text.data(), static_cast<size_t>(written));
  if (out.find('.') != out.npos) {
    out.resize(out.find_last_not_of('0') + 1);
    if (out.ends_with('.')) out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

// Goes back to the last '*' only: an earlier one cannot match better.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::optional<std::pair<std::string_view, std::string_view>> star;  // behind it, and its name
  for (;;) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      star = {pattern, name};
    } else if (name.empty()) {
      return pattern.empty();
    } else if (pattern.empty() || !matches_one(pattern, name.front())) {
      if (!star) return false;
      star->second.remove_prefix(1);
      std::tie(pattern, name) = *star;
    } else {
      name.remove_prefix(1);
    }
  }
}

}  // namespace ff::gateway
