// chunk_parser.cc: a state machine that keeps one line at most.
#include "platform/http/chunk_parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace ff::http {

namespace {

constexpr size_t kSizeDigitsMax = 15;  // no overflow

Result<uint64_t> parse_chunk_size(std::string_view digits) {
  uint64_t size = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, size, 16);
  if (digits.empty() || digits.size() > kSizeDigitsMax || error != std::errc() || end != last) {
    return fail(Errc::corrupt, "the size of a chunk is not a number");
  }
  return size;
}

}  // namespace

Result<bool> ChunkParser::take_line(ByteView input, Step& step) {
  const std::string_view text = as_text(input);
  const size_t end = text.find('\n');
  const size_t part = std::min(end == text.npos ? text.size() : end + 1, text.size());
  if (line_.size() + part > kLineMax) return fail(Errc::corrupt, "a line of a chunk is too long");
  line_ += text.substr(0, part);
  step.consumed += part;
  if (end == text.npos) return false;
  if (!line_.ends_with("\r\n")) return fail(Errc::corrupt, "a line of a chunk ends without CR");
  line_.resize(line_.size() - 2);
  return true;
}

Result<void> ChunkParser::begin_chunk() {
  const std::string line = std::exchange(line_, {});
  const size_t semicolon = std::min(line.find(';'), line.size());
  FF_TRY(size_, parse_chunk_size(std::string_view(line).substr(0, semicolon)));
  extension_ = line.substr(std::min(semicolon + 1, line.size()));
  left_ = size_;
  state_ = size_ > 0 ? State::data : State::trailer;
  return {};
}

// Trailers go on to the next line; all other lines are events.
Result<ChunkParser::Step> ChunkParser::next_line(ByteView input) {
  Step step;
  for (;;) {
    FF_TRY(const bool complete, take_line(input.subspan(step.consumed), step));
    if (!complete) return step;
    if (state_ == State::size_line) {
      FF_TRY(begin_chunk());
      step.event = Event::chunk_begin;
      return step;
    }
    if (state_ == State::data_end) {
      if (!line_.empty()) return fail(Errc::corrupt, "a chunk is longer than its size");
      state_ = State::size_line;
      step.event = Event::chunk_end;
      return step;
    }
    if (line_.empty()) {
      state_ = State::ended;
      step.event = Event::end;
      return step;
    }
    trailer_bytes_ += line_.size();
    if (trailer_bytes_ > kTrailersMax) return fail(Errc::corrupt, "the trailers are too long");
    FF_TRY(auto field, parse_field(std::exchange(line_, {})));
    trailers_.push_back(std::move(field));
  }
}

Result<ChunkParser::Step> ChunkParser::next(ByteView input) {
  if (state_ == State::ended) return Step{.event = Event::end};
  if (input.empty()) return Step();
  if (state_ != State::data) return next_line(input);
  const size_t part = std::min<uint64_t>(left_, input.size());
  left_ -= part;
  if (left_ == 0) state_ = State::data_end;
  return Step{.event = Event::data, .consumed = part, .data = input.first(part)};
}

}  // namespace ff::http
