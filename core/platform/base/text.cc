// text.cc: escaping, pattern matching and suggestions of text.h.
//
// Both escapers iterate over UTF-8 characters; a byte that starts no valid character is escaped
// alone. The pattern matcher backtracks only to the last `*`, so it takes at most
// pattern-length times name-length steps for any pattern.
#include "platform/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>

namespace ff {
namespace {

constexpr size_t kListMax = 65'536;  // numbers in a list; more CPUs than Linux supports

// The length in bytes of the valid UTF-8 character at the front of `text`; 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (lead == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if (lead == 0xf0 && byte(1) < 0x90) return 0;   // overlong
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
  return length;
}

// The code point of a control character (C0, DEL or C1); -1 for any other character.
int control_code(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1 && (first < 0x20 || first == 0x7f)) return first;
  if (character.size() == 2 && first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0) {
    return static_cast<uint8_t>(character[1]);
  }
  return -1;
}

void append_json_character(std::string& out, std::string_view character) {
  const int control = control_code(character);
  if (character == "\"" || character == "\\") {
    out += '\\';
    out += character;
  } else if (character == "\n") {
    out += "\\n";
  } else if (character == "\t") {
    out += "\\t";
  } else if (control >= 0 || character == "<") {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", control >= 0 ? control : '<');
  } else {
    out += character;
  }
}

// The result of matching one byte of a name: whether it matches, and the next pattern position.
struct Step {
  bool matches = false;
  size_t next = 0;
};

// Matches the class that starts at `at` ('['). An unclosed bracket is literal.
Step match_class(std::string_view pattern, size_t at, char c) {
  size_t i = at + 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool inside = false;
  const auto take = [&](char& into) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    into = pattern[i++];
  };
  for (bool first = true; i < pattern.size(); first = false) {
    if (pattern[i] == ']' && !first) return {inside != negated, i + 1};
    char low = 0;
    take(low);
    char high = low;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      ++i;
      take(high);
    }
    const auto byte = static_cast<uint8_t>(c);
    inside |= static_cast<uint8_t>(low) <= byte && byte <= static_cast<uint8_t>(high);
  }
  return {c == '[', at + 1};
}

Step match_one(std::string_view pattern, size_t at, char c) {
  switch (pattern[at]) {
    case '?': return {true, at + 1};
    case '[': return match_class(pattern, at, c);
    case '\\':
      if (at + 1 < pattern.size()) return {pattern[at + 1] == c, at + 2};
      [[fallthrough]];
    default: return {pattern[at] == c, at + 1};
  }
}

// Longer words are not typing errors, and three rows of this size fit on the stack.
constexpr size_t kMaxWord = 64;

// Edit distance with transpositions (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, kMaxWord + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_above[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

// Removes and returns the prefix of `text` that needs no escaping anywhere: printable ASCII without
// quotes and backslashes. Most names are such a prefix as a whole.
std::string_view take_plain(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && text[length] >= ' ' && text[length] < 0x7f &&
         text[length] != '"' && text[length] != '\\' && text[length] != '<') {
    ++length;
  }
  const std::string_view plain = text.substr(0, length);
  text.remove_prefix(length);
  return plain;
}

}  // namespace

void append_printable(std::string& out, std::string_view text) {
  out += take_plain(text);
  while (!text.empty()) {
    const size_t valid = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(valid, 1));
    if (valid == 0 || control_code(character) >= 0) {
      for (const char c : character) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(c));
      }
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
}

std::string printable(std::string_view text) {
  std::string out;
  append_printable(out, text);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  out += take_plain(text);
  while (!text.empty()) {
    const size_t valid = utf8_length(text);
    if (valid == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
      continue;
    }
    append_json_character(out, text.substr(0, valid));
    text.remove_prefix(valid);
  }
  out += '"';
}

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t valid = utf8_length(text);
    if (valid == 0) return false;
    text.remove_prefix(valid);
  }
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<uint64_t> parse_u64(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<unsigned> parse_cpu_list(std::string_view text) {
  std::vector<unsigned> numbers;
  if (text.empty()) return numbers;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = parse_u64(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_u64(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kListMax) return {};
    for (uint64_t at = *first; at <= *last; at++) numbers.push_back(static_cast<unsigned>(at));
    if (numbers.size() > kListMax) return {};
  }
  return numbers;
}

std::string hex(ByteView bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

bool glob_match(std::string_view pattern, std::string_view name) {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0;
  size_t done = 0;
  size_t star = kNone;  // pattern position after the last '*'
  size_t star_end = 0;  // the name up to here belongs to that '*'
  while (done < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      star_end = done;
      continue;
    }
    const Step step = at < pattern.size() ? match_one(pattern, at, name[done]) : Step{};
    if (step.matches) {
      at = step.next;
      ++done;
    } else if (star != kNone) {
      at = star;
      done = ++star_end;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

uint64_t fnv1a(std::string_view name) {
  uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211ULL;
  return hash;
}

std::string shell_quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string shell_quote_if_needed(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+,-./:=@_%";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == text.npos;
  return is_plain ? std::string(text) : shell_quote(text);
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > kMaxWord) return {};
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  std::string_view found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

}  // namespace ff
