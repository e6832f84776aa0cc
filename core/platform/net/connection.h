// A connection: frames and bulk over a stream, the same for every transport (wire.md).
//
// Frames queue up and leave together, in batches and at the end of the loop's turn. Bulk is shaped
// like RDMA: the side that owns memory exposes it and sends the peer a Slice of it in a message;
// the peer pushes into a sink or pulls from a source. Where the transport can (Bulk: shared memory,
// RDMA) the peer reaches the memory itself; otherwise the bytes follow a frame of a bulk kind, and
// are read straight into the sink or written straight from the source.
//
// receive() must be kept running: it also serves the peer's pushes and pulls. A connection that met
// an error stays failed: everything returns that error. Owned by one loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/net/bulk.h"
#include "platform/net/frame.h"
#include "platform/net/stream.h"

namespace ff::net {

// Outgoing bytes above which push() waits; send() may go above it, up to kQueuedMax.
constexpr size_t kQueuedRoom = 4 * kMiB;
// A peer that lets so much pile up does not read: the connection fails.
constexpr size_t kQueuedMax = 64 * kMiB;
// The largest piece of a push or pull that travels in one frame: frames of other calls fit between.
constexpr size_t kSegmentBytes = 1 * kMiB;
// Pulls of the peer that wait to be answered.
constexpr size_t kPullsMax = 1024;

class Connection {
 public:
  // `bulk` may be null.
  Connection(Loop& loop, std::unique_ptr<Stream> stream, std::unique_ptr<Bulk> bulk);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Loop& loop() const { return loop_; }
  // "10.0.0.2:4000 (tcp)".
  const std::string& peer() const { return peer_; }
  const std::string& local() const { return local_; }
  // Whether the peer itself reaches exposed memory, and may still do so after the exposure ended.
  bool one_sided() const { return bulk_ != nullptr; }
  bool same_host() const { return bulk_ != nullptr && bulk_->same_host(); }

  // Queues a frame; lost without a word when the connection has failed.
  void send(const Head& head, std::string_view message = {});
  // The next frame that is not of a bulk kind; one caller at a time. Errc::unreachable when the
  // connection is gone, Errc::corrupt when the peer broke the protocol.
  Task<Result<Frame>> receive();
  // When bytes of the peer came last; at first, when the connection was made.
  int64_t heard_ns() const { return heard_ns_; }
  // Waits until less than kQueuedRoom is queued.
  Task<Result<void>> room();
  size_t queued_bytes() const { return queued_; }
  // Waits until everything queued has been handed to the stream.
  Task<Result<void>> flushed();

  // Memory the peer may write (sink) or read (source), until the exposure is destroyed.
  //
  // From then on the peer's bytes are dropped, and zeros go out for what is still on its way,
  // except when one_sided(): then keep exposure and memory until the peer has said that it is done,
  // or the connection is closed. Over RDMA a peer that still uses what has ended breaks the
  // connection.
  class [[nodiscard]] Exposure {
   public:
    Exposure() = default;
    Exposure(Exposure&& other) noexcept
        : connection_(std::exchange(other.connection_, nullptr)), slice_(other.slice_) {}
    Exposure& operator=(Exposure&& other) noexcept {
      std::swap(connection_, other.connection_);
      std::swap(slice_, other.slice_);
      return *this;
    }
    ~Exposure();
    const Slice& slice() const { return slice_; }

   private:
    friend class Connection;
    Connection* connection_ = nullptr;
    Slice slice_;
  };
  // Must not outlive the connection. Errors: what Bulk::share says.
  Result<Exposure> expose_sink(ByteSpan memory);
  Result<Exposure> expose_source(ByteView memory);

  // Writes `from` at `offset` of the peer's sink. When it returns `from` is free again, and a frame
  // sent later arrives after the bytes. Errc::usage when it does not fit the slice.
  Task<Result<void>> push(Slice sink, uint64_t offset, ByteView from);
  // Reads the peer's source at `offset`.
  Task<Result<void>> pull(Slice source, uint64_t offset, ByteSpan into);
  // The slice's memory when kernel I/O of this process reaches it in place (shared memory): for
  // pread and pwrite, never for loads and stores, for its owner may cut it off. It stays mapped
  // until the connection is destroyed: no I/O on it may be under way then.
  std::optional<ByteSpan> reach(const Slice& slice);

  // Fails the connection with `error`, if it has not failed, and closes the stream. The peer sees
  // the end of the stream. fault: what it sent to deserve that.
  void close(Error error, FrameFault fault = FrameFault::none);
  bool failed() const { return error_.has_value(); }
  // Why it has failed.
  const std::optional<Error>& close_reason() const { return error_; }
  // What the peer sent that it has failed for; none: for another reason.
  FrameFault fault() const { return fault_; }

 private:
  struct PushWait;
  struct PullWait;
  // Frames, and the payload of the last of them.
  struct Outgoing {
    std::string bytes;
    const std::byte* payload = nullptr;
    size_t payload_size = 0;
    size_t written = 0;        // of both
    bool zeros = false;        // the payload's owner has gone
    uint64_t token = 0;        // the exposure that owns the payload: the answer to a pull
    PushWait* push = nullptr;  // or the push that does
    bool answers_pull = false;
    size_t copied = 0;  // of `bytes`: what was pushed
    size_t size() const { return bytes.size() + payload_size; }
  };
  // Whose payload is being read.
  struct Incoming {
    enum class To : uint8_t { nobody, sink, pull } to = To::nobody;
    uint64_t id = 0;  // exposure or ticket
    uint64_t offset = 0;
    size_t left = 0;
  };
  // A part of a pull that the peer has been asked for.
  struct PullSegment {
    PullWait* pull = nullptr;
    ByteSpan into;
  };
  struct Exposed {
    std::byte* memory = nullptr;
    size_t size = 0;
    bool writable = false;
  };
  class Flush;

  Result<Exposure> expose(ByteSpan memory, bool writable);
  void unexpose(const Slice& slice);
  Result<void> reached(Result<void> result) const;
  void queue(Outgoing piece);
  void account(size_t frame, size_t payload);
  void send_frame(const Head& head, std::string_view message);
  void tell_regions();
  Outgoing& last_piece();
  void send_copy(uint64_t token, uint64_t offset, ByteView from);
  void flush();
  Result<bool> write_some();
  void written(size_t bytes);
  Task<void> flush_when_writable();

  Result<std::optional<Frame>> parse(FrameFault& fault);
  Result<size_t> read_some();
  Result<void> take_bulk(const Head& head, ByteView message);
  Result<void> take_push(const Head& head, ByteView message);
  Result<void> take_pull(const Head& head, ByteView message);
  Result<void> take_pulled(const Head& head, ByteView message);
  Result<void> take_region(const Head& head, ByteView message);
  ByteSpan incoming_memory();
  void take_payload(size_t bytes);

  Loop& loop_;
  std::string peer_;
  std::string local_;
  std::optional<Error> error_;
  FrameFault fault_ = FrameFault::none;
  std::map<uint64_t, Exposed> exposed_;
  uint64_t next_token_ = 1;

  std::deque<Outgoing> outgoing_;
  std::string spare_;         // memory for the next frames
  size_t queued_ = 0;         // bytes, payloads included
  size_t queued_frames_ = 0;  // bytes of heads and messages
  size_t gathered_ = 0;       // frames queued since the last write
  bool waits_to_write_ = false;
  std::unique_ptr<Flush> flush_;
  Event room_;
  Event flushed_;

  int64_t heard_ns_ = 0;
  std::vector<std::byte> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t in_needed_ = kHeadBytes;  // contiguous bytes that parse() waits for
  Incoming incoming_;
  std::map<uint64_t, PullSegment> pulls_;  // by ticket
  uint64_t next_ticket_ = 1;
  size_t pulls_to_answer_ = 0;

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Bulk> bulk_;
  Gate gate_;
};

}  // namespace ff::net
