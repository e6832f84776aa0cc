// Splits an inline command of the Redis protocol into words, with the quotes and escapes of
// redis-cli: "a \n\x00" and 'b \''.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ff::gateway {

// Empty: a quote is not closed, or no space follows it. No words: the line is blank.
std::optional<std::vector<std::string>> split_inline(std::string_view line);

}  // namespace ff::gateway
