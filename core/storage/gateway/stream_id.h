// Ids of the entries of a stream: a time in milliseconds and a number, "1700000000000-0". Parsing
// follows Redis (t_stream.c of 7.0), with its errors.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::gateway {

struct StreamId {
  static constexpr size_t kKeyBytes = 16;

  uint64_t ms = 0;
  uint64_t seq = 0;

  friend auto operator<=>(const StreamId&, const StreamId&) = default;
  static constexpr StreamId largest() { return {UINT64_MAX, UINT64_MAX}; }
  bool is_zero() const { return *this == StreamId(); }
  // The next one, the one before; false: there is none.
  bool increment();
  bool decrement();
  std::string text() const;
  // As a key that sorts as ids do: big-endian.
  std::string key() const;
  static StreamId of_key(std::string_view key);
};

Error invalid_stream_id();
// Without a number: `missing_seq`. The error is the reply.
Result<StreamId> parse_stream_id(std::string_view text, uint64_t missing_seq);

// Likewise, of XADD: "5-*" leaves the number to the stream.
struct NewStreamId {
  StreamId id = {};
  bool has_seq = true;
};
Result<NewStreamId> parse_new_stream_id(std::string_view text);

// Ends of an interval: "-" and "+" are the smallest and the largest id, "(" excludes the id behind
// it.
Result<StreamId> parse_interval_start(std::string_view text);
Result<StreamId> parse_interval_end(std::string_view text);

}  // namespace ff::gateway
