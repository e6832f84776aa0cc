// Text from outside: escaping for terminals and JSON, matching names, suggesting the nearest one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"

namespace ff {

// Control bytes (ESC, CR, NUL, newline, DEL, ...), the C1 controls U+0080..U+009F and bytes that
// are not UTF-8 become `\xNN`, so that a name can be printed to a terminal or a log line. For
// reading only: a backslash stays as it is.
std::string printable(std::string_view text);
void append_printable(std::string& out, std::string_view text);

// Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. Control
// characters and `<` are written `\uNNNN`, so that the result is also safe in a terminal and inside
// an HTML script element.
void append_json_string(std::string& out, std::string_view text);

// As RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

// What stands between the separators: one part more than there are of them, empty ones too.
std::vector<std::string_view> split(std::string_view text, char separator);

// A decimal number, the whole text of it; nothing for a sign, or one that is too large.
std::optional<uint64_t> parse_u64(std::string_view text);

// "0-3,8,10-11" -> 0 1 2 3 8 10 11: Linux's lists of processors and NUMA nodes. Anything else:
// none.
std::vector<unsigned> parse_list(std::string_view text);

// Two lower-case digits a byte.
std::string hex(ByteView bytes);

// FNV-1a: the same for a name on every machine, and spread evenly enough. No secret is in it.
uint64_t hash_of(std::string_view name);

// As one word of a shell, in single quotes: sh's, and those of bash, zsh and fish.
std::string shell_word(std::string_view text);
// The same, as it is when nothing in it means anything to a shell.
std::string shell_text(std::string_view text);

// Shell pattern over the whole of `name`: `*` any run (`/` included), `?` one byte, `[a-z]` a class
// and `[!a-z]` all but it, `\` escapes. A `[` that is never closed stands for itself.
bool glob_match(std::string_view pattern, std::string_view name);

// The candidate with the smallest edit distance to `word` (insert, delete, replace, swap of two
// neighbours), or "" when none is near (distance above a third of the length, at least 1). The
// first of equals.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace ff
