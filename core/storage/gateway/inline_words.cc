// inline_words.cc: one word at a time, plain or quoted.
#include "storage/gateway/inline_words.h"

#include "platform/auth/key.h"

namespace ff::gateway {

namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == '\0';
}

int digit_of(char c) {
  return c >= 'A' && c <= 'F' ? auth::hex_digit(static_cast<char>(c - 'A' + 'a'))
                              : auth::hex_digit(c);
}

char escaped(char c) {
  switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return c;
  }
}

// Appends what is between double quotes; `at` is behind the first. False: it is not closed.
bool take_double_quoted(std::string_view line, size_t& at, std::string& word) {
  while (at < line.size()) {
    const char c = line[at];
    if (c == '"') return ++at, true;
    const bool is_hex = c == '\\' && at + 3 < line.size() && line[at + 1] == 'x' &&
                        digit_of(line[at + 2]) >= 0 && digit_of(line[at + 3]) >= 0;
    if (is_hex) {
      word += static_cast<char>(digit_of(line[at + 2]) * 16 + digit_of(line[at + 3]));
      at += 4;
    } else if (c == '\\' && at + 1 < line.size()) {
      word += escaped(line[at + 1]);
      at += 2;
    } else {
      word += c;
      at++;
    }
  }
  return false;
}

bool take_single_quoted(std::string_view line, size_t& at, std::string& word) {
  while (at < line.size()) {
    if (line[at] == '\'') return ++at, true;
    if (line.substr(at).starts_with("\\'")) at++;
    word += line[at++];
  }
  return false;
}

}  // namespace

std::optional<std::vector<std::string>> split_inline(std::string_view line) {
  std::vector<std::string> words;
  for (size_t at = 0;;) {
    while (at < line.size() && is_blank(line[at])) at++;
    if (at == line.size()) return words;
    std::string& word = words.emplace_back();
    while (at < line.size() && !is_blank(line[at])) {
      const char c = line[at];
      if (c != '"' && c != '\'') {
        word += c;
        at++;
        continue;
      }
      at++;
      const bool closed =
          c == '"' ? take_double_quoted(line, at, word) : take_single_quoted(line, at, word);
      if (!closed || (at < line.size() && !is_blank(line[at]))) return std::nullopt;
      break;
    }
  }
}

}  // namespace ff::gateway
