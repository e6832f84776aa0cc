// stream_id.cc: numbers as strtoull(3) reads them, because Redis does.
#include "storage/gateway/stream_id.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "platform/base/bytes.h"
#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr size_t kIdTextMax = 127;

std::optional<uint64_t> parse_unsigned(const std::string& text) {
  if (const auto number = parse_integer(text)) {
    if (*number < 0) return std::nullopt;
    return static_cast<uint64_t>(*number);
  }
  char* end = nullptr;
  errno = 0;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  if (errno != 0 || text.empty() || end == text.c_str() || *end != '\0') return std::nullopt;
  return number;
}

// Ends at a NUL, as texts do in C.
std::optional<std::string> id_text(std::string_view text) {
  if (text.size() > kIdTextMax) return std::nullopt;
  return std::string(text.substr(0, text.find('\0')));
}

Result<NewStreamId> parse_parts(std::string_view text, uint64_t missing_seq, bool seq_may_miss) {
  const auto all = id_text(text);
  if (!all) return invalid_stream_id();
  const size_t dash = all->find('-');
  NewStreamId parsed;
  const auto ms = parse_unsigned(all->substr(0, dash));
  if (!ms) return invalid_stream_id();
  parsed.id = {*ms, missing_seq};
  if (dash == all->npos) return parsed;
  const std::string behind = all->substr(dash + 1);
  if (seq_may_miss && behind == "*") {
    parsed.id.seq = 0;
    parsed.has_seq = false;
    return parsed;
  }
  const auto seq = parse_unsigned(behind);
  if (!seq) return invalid_stream_id();
  parsed.id.seq = *seq;
  return parsed;
}

Result<StreamId> parse_interval_edge(std::string_view text, uint64_t missing_seq) {
  if (text == "-") return StreamId();
  if (text == "+") return StreamId::largest();
  return parse_stream_id(text, missing_seq);
}

}  // namespace

bool StreamId::increment() {
  if (seq == UINT64_MAX && ms == UINT64_MAX) return false;
  if (++seq == 0) ms++;
  return true;
}

bool StreamId::decrement() {
  if (is_zero()) return false;
  if (seq-- == 0) ms--;
  return true;
}

std::string StreamId::text() const { return fmt::format("{}-{}", ms, seq); }

std::string StreamId::key() const {
  std::string out;
  append_le(out, __builtin_bswap64(ms));
  append_le(out, __builtin_bswap64(seq));
  return out;
}

StreamId StreamId::of_key(std::string_view key) {
  if (key.size() != kKeyBytes) return {};
  const auto* const at = as_bytes(key).data();
  return {__builtin_bswap64(load_le<uint64_t>(at)),
          __builtin_bswap64(load_le<uint64_t>(at + sizeof(uint64_t)))};
}

Error invalid_stream_id() {
  return fail(Errc::usage, "ERR Invalid stream ID specified as stream command argument");
}

Result<StreamId> parse_stream_id(std::string_view text, uint64_t missing_seq) {
  FF_TRY(const NewStreamId parsed, parse_parts(text, missing_seq, false));
  return parsed.id;
}

Result<NewStreamId> parse_new_stream_id(std::string_view text) {
  return parse_parts(text, 0, true);
}

Result<StreamId> parse_interval_start(std::string_view text) {
  if (!text.starts_with('(')) return parse_interval_edge(text, 0);
  FF_TRY(StreamId id, parse_stream_id(text.substr(1), 0));
  if (!id.increment()) return fail(Errc::usage, "ERR invalid start ID for the interval");
  return id;
}

Result<StreamId> parse_interval_end(std::string_view text) {
  if (!text.starts_with('(')) return parse_interval_edge(text, UINT64_MAX);
  FF_TRY(StreamId id, parse_stream_id(text.substr(1), UINT64_MAX));
  if (!id.decrement()) return fail(Errc::usage, "ERR invalid end ID for the interval");
  return id;
}

}  // namespace ff::gateway
