// A sealed line: one line of JSON that carries its own CRC32C as the last member,
// `...,"crc":"0123abcd"}`, over all bytes before `,"crc"`. Indexes, the store's description,
// leases and `verified` files consist of such lines, so that any flipped bit is found.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ff::checkpoint {

// `open_object` is a JSON object without its closing brace; returns the line with its newline.
std::string seal_line(std::string open_object);

// Whether `line` (without newline) is intact.
bool line_is_sealed(std::string_view line);

// The text member `key` of a sealed line's object; nothing when it is absent or not a string.
std::optional<std::string> sealed_text(std::string_view line, std::string_view key);
// The same for a whole number.
std::optional<int64_t> sealed_number(std::string_view line, std::string_view key);

}  // namespace ff::checkpoint
