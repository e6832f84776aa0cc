// Text utilities: escaping untrusted text for terminals, JSON and shells, parsing numbers, matching
// patterns, suggesting the nearest name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"

namespace ff {

// Escapes control bytes (ESC, CR, NUL, newline, DEL, ...), the C1 controls U+0080..U+009F and bytes
// that are not UTF-8 as `\xNN`, so that the text is safe on a terminal or in a log line. The result
// is for humans and cannot be parsed back: backslashes are not escaped.
std::string printable(std::string_view text);
void append_printable(std::string& out, std::string_view text);

// Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. Control
// characters and `<` are written `\uNNNN`, so that the result is also safe in a terminal and inside
// an HTML script element.
void append_json_string(std::string& out, std::string_view text);

// Valid per RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

// Splits at each separator and keeps empty parts: n separators give n + 1 parts.
std::vector<std::string_view> split(std::string_view text, char separator);

// Parses a decimal number that fills the whole text; nullopt for a sign or an overflow.
std::optional<uint64_t> parse_u64(std::string_view text);

// "0-3,8,10-11" -> 0 1 2 3 8 10 11: the CPU list format of Linux (cpuset(7)), also used for NUMA
// nodes. Empty when the text is malformed.
std::vector<unsigned> parse_cpu_list(std::string_view text);

// Two lower-case hex digits per byte.
std::string hex(ByteView bytes);

// The 64-bit FNV-1a hash: the same on every machine. Not cryptographic.
uint64_t fnv1a(std::string_view name);

// Quotes the text as one shell word in single quotes; valid for sh, bash, zsh and fish.
std::string shell_quote(std::string_view text);
// Like shell_quote(), but leaves text without special characters as it is.
std::string shell_quote_if_needed(std::string_view text);

// Matches a shell pattern against the whole `name`: `*` matches any bytes (also `/`), `?` one byte,
// `[a-z]` a class, `[!a-z]` its complement; `\` escapes. An unclosed `[` is literal.
bool glob_match(std::string_view pattern, std::string_view name);

// The candidate with the smallest edit distance to `word` (insert, delete, replace, transpose two
// adjacent characters); "" if none is within a third of the length of `word` (at least 1). The
// first candidate wins a tie.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace ff
