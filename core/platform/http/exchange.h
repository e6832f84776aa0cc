// One request and its reply on a connection (server.h). The handler reads the body piece by piece
// as it needs it, and sends the reply whole or piece by piece; nothing is kept beside the caller's
// memory and one buffer of the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/http/chunk_parser.h"
#include "platform/http/request_head.h"
#include "platform/net/stream.h"

namespace ff::http {

struct ReplyHead {
  int status = 200;
  std::vector<Field> fields = {};  // without Content-Length, Date and Connection
};

std::string_view reason_of(int status);
// "Sat, 28 Nov 2026 17:38:00 GMT" (RFC 9110, 5.6.7).
std::string format_date(int64_t seconds);
// Seconds since 1970; empty: not such a date.
std::optional<int64_t> parse_date(std::string_view text);

// A client must send and take at least kRateBytes in kRateNs, or its connection ends.
constexpr int64_t kRateNs = 60 * kSecond;
constexpr uint64_t kRateBytes = 64 * kKiB;

// What the connection has read and not used.
class ReadBuffer {
 public:
  explicit ReadBuffer(size_t bytes) : bytes_(bytes) {}

  ByteView unread() const { return ByteView(bytes_).subspan(begin_, end_ - begin_); }
  void consume(size_t bytes) { begin_ += bytes; }
  // Moves what is unread to the front.
  ByteSpan space();
  void commit(size_t bytes) { end_ += bytes; }

 private:
  std::vector<std::byte> bytes_;
  size_t begin_ = 0, end_ = 0;
};

class Exchange {
 public:
  // Made by a connection, which outlives it. `body`: as body_length() has it.
  Exchange(Loop& loop, net::Stream& stream, ReadBuffer& buffer, RequestHead head,
           std::optional<uint64_t> body);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const RequestHead& head() const { return head_; }
  // The length of the body; empty: it is not known before its end.
  const std::optional<uint64_t>& body_size() const { return body_; }
  std::string peer() const { return stream_.peer(); }

  // Reads until `into` is full or the body ends; returns the bytes read. Tells a client that waits
  // for it (Expect: 100-continue) to send. Errc::deadline: the client is too slow.
  Task<Result<size_t>> read(ByteSpan into);
  // The whole body. Errc::usage: it has more than `bytes_max` bytes.
  Task<Result<std::string>> read_all(size_t bytes_max);
  // Whether the body has been read to its end.
  bool body_done() const { return done_; }

  // Header fields for the reply, whatever it will be; before it begins.
  void add_reply_fields(std::vector<Field> fields) { more_fields_ = std::move(fields); }
  // Sends a reply; call one of both, once. To HEAD, no body is sent.
  Task<Result<void>> reply(ReplyHead head, std::string_view body);
  // Sends a head only; `length` bytes must follow with write().
  Task<Result<void>> begin_reply(ReplyHead head, uint64_t length);
  Task<Result<void>> write(ByteView bytes);

  // Whether a reply has begun; and whether all of it has been sent.
  bool replied() const { return replied_; }
  bool complete() const { return replied_ && left_to_send_ == 0; }
  int status() const { return status_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  // The connection ends after this exchange.
  void close_after() { keep_ = false; }
  bool keeps() const { return keep_; }
  // Reads and drops what is left of the body, up to `bytes_max` bytes until `until_ns`. False:
  // there is more.
  Task<Result<bool>> skip_body(uint64_t bytes_max, int64_t until_ns);

 private:
  // The time that a slow client has, from one block of kRateBytes to the next.
  struct Rate {
    int64_t until_ns = 0;
    uint64_t bytes = 0;
    void add(uint64_t more, int64_t now_ns);
  };

  Task<Result<size_t>> read_some(ByteSpan into);
  Task<Result<size_t>> read_plain(ByteSpan into);
  Task<Result<size_t>> read_chunked(ByteSpan into);
  Task<Result<void>> fill_buffer();
  Task<Result<size_t>> receive(ByteSpan into);
  Task<Result<void>> send(ByteView bytes);
  Task<Result<void>> send_continue();
  std::string format_head(const ReplyHead& head, uint64_t length) const;

  Loop& loop_;
  net::Stream& stream_;
  ReadBuffer& buffer_;
  const RequestHead head_;
  const std::optional<uint64_t> body_;
  uint64_t body_left_;  // unless it is chunked
  ChunkParser chunks_;
  bool done_;
  bool expects_continue_;
  bool keep_;
  bool replied_ = false;
  int status_ = 0;
  uint64_t left_to_send_ = 0;
  uint64_t bytes_sent_ = 0;          // of bodies
  std::optional<int64_t> limit_ns_;  // for reads, in place of the rate
  Rate receiving_, sending_;
  std::vector<Field> more_fields_;
};

}  // namespace ff::http
