// Parses the requests of Redis clients (RESP, the Redis serialization protocol): arrays of bulk
// strings, and inline commands, which people type. Incremental and bounded: bytes arrive in any
// pieces, and a peer that announces much and sends little costs little memory.
//
//   *3\r\n $3\r\n SET\r\n $3\r\n key\r\n $5\r\n value\r\n        or        SET key value\r\n
//
// A caller reads bytes into space(), reports them with commit(), and takes requests from next().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::gateway {

// The words of one request: the name of the command and its arguments. Never empty.
using RespRequest = std::vector<std::string>;

struct RespLimits {
  size_t bulk_max = 512 * kMiB;          // bytes of one word
  size_t words_max = size_t{1} << 20;    // of one request
  size_t line_max = 64 * kKiB;           // bytes of an inline command, or of the line of a length
  size_t request_max = size_t{1} << 30;  // bytes of all words of a request
};
// Of clients that have not authenticated, as in Redis.
constexpr RespLimits kRespLimitsBeforeAuth = {
    .bulk_max = 16 * kKiB, .words_max = 10, .line_max = 64 * kKiB, .request_max = 160 * kKiB};

class RespParser {
 public:
  RespParser() = default;

  // Hold for the requests that begin after the call.
  void set_limits(RespLimits limits) { limits_ = limits; }

  // Memory for the next bytes of the stream, never empty; valid until the next call.
  ByteSpan space();
  // The stream has written `bytes` bytes to the beginning of space().
  void commit(size_t bytes);

  // The next complete request; empty: more bytes are needed. Errc::corrupt: not the protocol; the
  // message is that of Redis ("Protocol error: ..."), and all later calls return it again.
  Result<std::optional<RespRequest>> next();

  // Bytes that have arrived and belong to no request that next() has returned.
  size_t buffered() const;
  // Frees memory while nothing is buffered, for clients that are idle for long.
  void release_memory();

 private:
  enum class Step : uint8_t { start, length, bulk };
  Result<bool> parse_some();
  Result<bool> parse_start();
  Result<bool> parse_inline();
  Result<bool> parse_length();
  Result<bool> parse_bulk();
  std::optional<std::string_view> take_line();
  bool is_too_long(const std::optional<std::string_view>& line) const;
  void begin_bulk(size_t size);
  void finish_word();
  bool reads_into_word() const;

  RespLimits limits_;
  std::string buffer_;  // received bytes from begin_ to end_; the rest is space
  size_t begin_ = 0, end_ = 0;
  bool was_full_ = false;  // more bytes have arrived than the buffer holds
  size_t scanned_ = 0;     // bytes from begin_ on in which no line ends

  Step step_ = Step::start;
  RespRequest words_;
  size_t words_left_ = 0;
  size_t request_bytes_ = 0;
  std::string word_;       // of a bulk string: the bytes that have arrived, then space
  size_t word_size_ = 0;   // with the CR LF behind it
  size_t word_bytes_ = 0;  // that have arrived
  bool complete_ = false;
  std::optional<Error> failure_;
};

}  // namespace ff::gateway
