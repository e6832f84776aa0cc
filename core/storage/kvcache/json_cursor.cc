// json_cursor.cc: the grammar of JSON.
#include "storage/kvcache/json_cursor.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace ff::kvcache {

namespace {

constexpr std::string_view kDigits = "0123456789";

void append_utf8(std::string& to, uint32_t code) {
  const auto byte = [&to](uint32_t value) { to += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

}  // namespace

Error JsonCursor::error(std::string_view what) const {
  return fail(Errc::usage, "JSON, offset {}: {}", at_, what);
}

void JsonCursor::skip_spaces() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
}

char JsonCursor::peek() {
  skip_spaces();
  return at_ < text_.size() ? text_[at_] : '\0';
}

Result<void> JsonCursor::enter(char open) {
  if (peek() != open)
    return error(open == '{' ? "an object was expected" : "an array was expected");
  ++at_;
  return {};
}

Result<bool> JsonCursor::more(bool& first, char close) {
  const char next = peek();
  if (next == close) {
    ++at_;
    return false;
  }
  if (first) {
    first = false;
    return true;
  }
  if (next != ',') return error("a comma or the end was expected");
  ++at_;
  return true;
}

Result<std::string_view> JsonCursor::member() {
  FF_TRY(const auto name, string());
  if (peek() != ':') return error("a colon was expected");
  ++at_;
  return name;
}

Result<std::string_view> JsonCursor::string() {
  if (peek() != '"') return error("a string was expected");
  const size_t begin = ++at_;
  for (; at_ < text_.size(); ++at_) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') return text_.substr(begin, at_++ - begin);
    if (c == '\\') return string_with_escapes(begin);
    if (c < 0x20) return error("a control character in a string");
  }
  return error("the text ends in a string");
}

Result<std::string_view> JsonCursor::string_with_escapes(size_t begin) {
  std::string& owned = owned_.emplace_back(text_.substr(begin, at_ - begin));
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) return error("a control character in a string");
    ++at_;
    if (c == '"') return std::string_view(owned);
    if (c != '\\') {
      owned += c;
      continue;
    }
    FF_TRY(append_escape(owned));
  }
  return error("the text ends in a string");
}

Result<uint32_t> JsonCursor::hex4() {
  uint32_t code = 0;
  const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || read.ptr != digits.data() + 4) return error("no \\u escape");
  at_ += 4;
  return code;
}

Result<void> JsonCursor::append_escape(std::string& to) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char name = at_ < text_.size() ? text_[at_++] : '\0';
  if (const size_t known = kNames.find(name); known != kNames.npos) {
    to += kMeanings[known];
    return {};
  }
  if (name != 'u') return error("an unknown escape");
  FF_TRY(uint32_t code, hex4());
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    FF_TRY(const uint32_t low, hex4());
    if (low < 0xdc00 || low >= 0xe000) return error("half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code < 0xe000) {
    return error("half of a surrogate pair");
  }
  append_utf8(to, code);
  return {};
}

Result<void> JsonCursor::skip_number() {
  const auto digits = [this] {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_not_of(kDigits, at_), text_.size());
    return at_ > begin;
  };
  const auto next_is = [this](std::string_view any) {
    return at_ < text_.size() && any.find(text_[at_]) != any.npos;
  };
  if (next_is("-")) ++at_;
  const bool zero = next_is("0");
  const size_t begin = at_;
  if (!digits() || (zero && at_ - begin > 1)) return error("a value was expected");
  if (next_is(".")) {
    ++at_;
    if (!digits()) return error("a number without digits");
  }
  if (next_is("eE")) {
    ++at_;
    if (next_is("+-")) ++at_;
    if (!digits()) return error("a number without digits");
  }
  return {};
}

Result<int64_t> JsonCursor::integer() {
  const char next = peek();
  if (next != '-' && kDigits.find(next) == kDigits.npos) return error("a number was expected");
  const size_t begin = at_;
  FF_TRY(skip_number());
  const std::string_view digits = text_.substr(begin, at_ - begin);
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
    at_ = begin;
    return error("an integer of 64 bits was expected");
  }
  return value;
}

Result<void> JsonCursor::skip(int depth) {
  if (depth > kDepthMax) return error("too many levels");
  const char next = peek();
  if (next == '"') {
    FF_TRY(string());
    return {};
  }
  if (next == '{' || next == '[') {
    const char close = next == '{' ? '}' : ']';
    ++at_;
    for (bool first = true;;) {
      FF_TRY(const bool another, more(first, close));
      if (!another) return {};
      if (next == '{') FF_TRY(member());
      FF_TRY(skip(depth + 1));
    }
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_).starts_with(word)) {
      at_ += word.size();
      return {};
    }
  }
  return skip_number();
}

Result<void> JsonCursor::finish() {
  if (peek() != '\0' || at_ < text_.size()) return error("more than one value");
  return {};
}

}  // namespace ff::kvcache
