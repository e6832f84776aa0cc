// resp_parser.cc: a state machine over one buffer. The bytes of long words are read directly into
// the word, whose memory grows with what has arrived.
#include "storage/gateway/resp_parser.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "platform/base/text.h"
#include "storage/gateway/inline_words.h"

namespace ff::gateway {

namespace {

constexpr size_t kFirstBufferBytes = 4 * kKiB;
constexpr size_t kBufferBytes = 128 * kKiB;  // of a client that sends much
// Words from this size on are read without a copy.
constexpr size_t kLongWord = 32 * kKiB;
constexpr size_t kLineEnd = 2;  // CR LF
constexpr size_t kWordsReserved = 64;

Error protocol_error(std::string_view what) {
  return fail(Errc::corrupt, "Protocol error: {}", what);
}

// A decimal number that fills the text, as Redis takes lengths.
std::optional<int64_t> parse_length_text(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool RespParser::reads_into_word() const {
  return step_ == Step::bulk && begin_ == end_ && word_size_ >= kLongWord &&
         word_bytes_ < word_size_;
}

ByteSpan RespParser::space() {
  if (reads_into_word()) {
    if (word_.size() == word_bytes_) {
      word_.resize(std::min(word_size_, std::max(2 * word_bytes_, 2 * kLongWord)));
    }
    return {reinterpret_cast<std::byte*>(word_.data()) + word_bytes_, word_.size() - word_bytes_};
  }
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == buffer_.size() && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const bool grows = std::exchange(was_full_, false) && buffer_.size() < kBufferBytes;
  if (buffer_.empty()) {
    buffer_.resize(kFirstBufferBytes);
  } else if (grows || end_ == buffer_.size()) {
    buffer_.resize(2 * buffer_.size());  // bounded by line_max and kLongWord
  }
  return {reinterpret_cast<std::byte*>(buffer_.data()) + end_, buffer_.size() - end_};
}

void RespParser::commit(size_t bytes) {
  if (reads_into_word()) {
    word_bytes_ += bytes;
    return;
  }
  end_ += bytes;
  if (end_ == buffer_.size()) was_full_ = true;
}

void RespParser::release_memory() {
  if (buffered() > 0 || step_ != Step::start) return;
  buffer_ = std::string();
  begin_ = end_ = 0;
}

size_t RespParser::buffered() const { return end_ - begin_ + request_bytes_ + word_bytes_; }

Result<std::optional<RespRequest>> RespParser::next() {
  if (failure_) return *failure_;
  complete_ = false;
  for (;;) {
    auto advanced = parse_some();
    if (!advanced) {
      failure_ = std::move(advanced).error();
      return *failure_;
    }
    if (complete_) break;
    if (!*advanced) return std::optional<RespRequest>();
  }
  request_bytes_ = 0;
  return std::optional(std::exchange(words_, {}));
}

// Whether it has advanced.
Result<bool> RespParser::parse_some() {
  switch (step_) {
    case Step::start: return parse_start();
    case Step::length: return parse_length();
    case Step::bulk: return parse_bulk();
  }
  return false;
}

// The next line without its end; empty: it has not arrived completely.
std::optional<std::string_view> RespParser::take_line() {
  const char* const from = buffer_.data() + begin_ + scanned_;
  const void* const found = std::memchr(from, '\n', end_ - begin_ - scanned_);
  if (found == nullptr) {
    scanned_ = end_ - begin_;
    return std::nullopt;
  }
  const size_t end = static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
  std::string_view line(buffer_.data() + begin_, end - begin_);
  begin_ = end + 1;
  scanned_ = 0;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Of a line that has not arrived completely, a CR may be there already.
bool RespParser::is_too_long(const std::optional<std::string_view>& line) const {
  return line ? line->size() > limits_.line_max : end_ - begin_ > limits_.line_max + 1;
}

Result<bool> RespParser::parse_start() {
  if (begin_ == end_) return false;
  if (buffer_[begin_] != '*') return parse_inline();
  const auto line = take_line();
  if (is_too_long(line)) return protocol_error("too big mbulk count string");
  if (!line) return false;
  const auto count = parse_length_text(line->substr(1));
  if (!count || *count > static_cast<int64_t>(RespLimits().words_max)) {
    return protocol_error("invalid multibulk length");
  }
  if (*count > static_cast<int64_t>(limits_.words_max)) {
    return protocol_error("unauthenticated multibulk length");
  }
  if (*count <= 0) return true;
  words_left_ = static_cast<size_t>(*count);
  words_.reserve(std::min(words_left_, kWordsReserved));
  step_ = Step::length;
  return true;
}

Result<bool> RespParser::parse_inline() {
  const auto line = take_line();
  if (is_too_long(line)) return protocol_error("too big inline request");
  if (!line) return false;
  auto words = split_inline(*line);
  if (!words) return protocol_error("unbalanced quotes in request");
  words_ = std::move(*words);
  complete_ = !words_.empty();
  return true;
}

Result<bool> RespParser::parse_length() {
  const auto line = take_line();
  if (is_too_long(line)) return protocol_error("too big bulk count string");
  if (!line) return false;
  if (!line->starts_with('$')) {
    return protocol_error(fmt::format(
        "expected '$', got '{}'", line->empty() ? std::string() : printable(line->substr(0, 1))));
  }
  const auto size = parse_length_text(line->substr(1));
  if (!size || *size < 0 || *size > static_cast<int64_t>(RespLimits().bulk_max)) {
    return protocol_error("invalid bulk length");
  }
  if (static_cast<size_t>(*size) > limits_.bulk_max) {
    return protocol_error("unauthenticated bulk length");
  }
  if (request_bytes_ + static_cast<size_t>(*size) > limits_.request_max) {
    return protocol_error("too big request");
  }
  word_size_ = static_cast<size_t>(*size) + kLineEnd;
  word_bytes_ = 0;
  step_ = Step::bulk;
  return true;
}

Result<bool> RespParser::parse_bulk() {
  const size_t there = std::min(end_ - begin_, word_size_ - word_bytes_);
  const std::string_view arrived(buffer_.data() + begin_, there);
  if (word_size_ < kLongWord) {
    if (there < word_size_) return false;  // it fits the buffer
    if (!arrived.ends_with("\r\n")) return protocol_error("expected CRLF behind a bulk string");
    word_.assign(arrived.substr(0, word_size_ - kLineEnd));
    begin_ += there;
    finish_word();
    return true;
  }
  if (there > 0) {
    if (word_.size() < word_bytes_ + there) word_.resize(word_bytes_ + there);
    std::memcpy(word_.data() + word_bytes_, arrived.data(), there);
    word_bytes_ += there;
    begin_ += there;
  }
  if (word_bytes_ < word_size_) return false;
  word_.resize(word_size_);
  if (!word_.ends_with("\r\n")) return protocol_error("expected CRLF behind a bulk string");
  word_.resize(word_size_ - kLineEnd);
  finish_word();
  return true;
}

void RespParser::finish_word() {
  request_bytes_ += word_.size();
  words_.push_back(std::exchange(word_, {}));
  word_bytes_ = 0;
  words_left_--;
  step_ = words_left_ > 0 ? Step::length : Step::start;
  complete_ = words_left_ == 0;
}

}  // namespace ff::gateway
