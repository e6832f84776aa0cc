// A connection: frames and bulk transfers over a stream, identical for every transport.
//
// Frames are queued and written in batches, at the latest at the end of the loop's turn. Bulk
// transfers follow the RDMA model: the owner of memory exposes it and sends the peer a
// RemoteBuffer in a message; the peer pushes into a sink or pulls from a source. With shared
// memory or RDMA (Bulk) the peer accesses the memory directly. Otherwise the bytes follow a frame
// of a bulk kind, without an intermediate copy on either side.
//
// The user must keep receive() running: it also serves the peer's pushes and pulls. After an error
// the connection stays failed and every call returns that error. Owned by one loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/entity.h"
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

// push() waits while more bytes are queued. send() may exceed this, up to kSendQueueMax.
constexpr size_t kSendQueueHighWater = 4 * kMiB;
// With more queued frames the connection fails: the peer does not read.
constexpr size_t kSendQueueMax = 64 * kMiB;
// Largest part of a push or pull in one frame, so that frames of other calls fit in between.
constexpr size_t kSegmentBytes = 1 * kMiB;
// Maximum number of unanswered pulls of the peer.
constexpr size_t kPullsMax = 1024;

// What the peer proved when the connection was set up.
struct PeerProof {
  bool has_key = false;  // both ends proved a key; else neither end has one
  // The accepting end: who connected.
  std::optional<auth::Entity> client = {};
};

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
  // True if the peer accesses exposed memory directly, and may do so after the exposure has ended.
  bool one_sided() const { return bulk_ != nullptr; }
  bool same_host() const { return bulk_ != nullptr && bulk_->same_host(); }
  const PeerProof& proof() const { return proof_; }
  void set_proof(PeerProof proof) { proof_ = std::move(proof); }

  // Queues a frame. Dropped silently if the connection has failed.
  void send(const FrameHeader& head, std::string_view message = {});
  // The next frame that is not of a bulk kind; one caller at a time. Errc::unreachable: the
  // connection is lost. Errc::corrupt: the peer violated the protocol.
  Task<Result<Frame>> receive();
  // Loop time of the last received byte; initially the time of construction.
  int64_t last_receive_ns() const { return last_receive_ns_; }
  // Waits until less than kSendQueueHighWater bytes are queued.
  Task<Result<void>> wait_for_send_space();
  size_t queued_bytes() const { return queued_; }
  // Waits until everything queued has been handed to the stream.
  Task<Result<void>> wait_flushed();

  // Memory that the peer may write (sink) or read (source) until the exposure is destroyed.
  //
  // Afterwards the connection drops bytes that the peer pushes, and sends zeros for pulls in
  // progress. If one_sided(), keep the exposure and the memory until the peer has confirmed that
  // it is done, or the connection is closed. RDMA: a peer that uses an ended exposure breaks the
  // connection.
  class [[nodiscard]] Exposure {
   public:
    Exposure() = default;
    Exposure(Exposure&& other) noexcept
        : connection_(std::exchange(other.connection_, nullptr)), buffer_(other.buffer_) {}
    Exposure& operator=(Exposure&& other) noexcept {
      std::swap(connection_, other.connection_);
      std::swap(buffer_, other.buffer_);
      return *this;
    }
    ~Exposure();
    const RemoteBuffer& buffer() const { return buffer_; }

   private:
    friend class Connection;
    Connection* connection_ = nullptr;
    RemoteBuffer buffer_;
  };
  // The exposure must not outlive the connection. Errors: those of Bulk::register_memory().
  Result<Exposure> expose_sink(ByteSpan memory);
  Result<Exposure> expose_source(ByteView memory);

  // Writes `from` at `offset` of the peer's sink. After it returns, `from` may be reused, and a
  // frame sent later arrives after the bytes. Errc::usage: outside the buffer.
  Task<Result<void>> push(RemoteBuffer sink, uint64_t offset, ByteView from);
  // The same for bytes that are the memory of a file (mmap), too. Where pushes_files(), they must
  // not change before the peer has said that it has them.
  Task<Result<void>> push_file(RemoteBuffer sink, uint64_t offset, ByteView from, FilePlace file);
  // Whether push_file() sends bytes from the file's memory, without a copy.
  bool pushes_files() const { return bulk_ == nullptr && stream_->writes_files(); }
  // Reads the peer's source at `offset`.
  Task<Result<void>> pull(RemoteBuffer source, uint64_t offset, ByteSpan into);
  // The mapping of a buffer that lies in shared memory. Use it for pread() and pwrite() only, never
  // for loads and stores: the owner may truncate the file (SIGBUS). While it is held, the peer does
  // not see the end of the stream, after which it reuses its memory. It must not outlive the
  // connection.
  class [[nodiscard]] MappedMemory {
   public:
    MappedMemory(MappedMemory&& other) noexcept
        : connection_(std::exchange(other.connection_, nullptr)), bytes_(other.bytes_) {}
    MappedMemory& operator=(MappedMemory&&) = delete;
    ~MappedMemory();
    ByteSpan bytes() const { return bytes_; }

   private:
    friend class Connection;
    MappedMemory(Connection& connection, ByteSpan bytes);
    Connection* connection_;
    ByteSpan bytes_;
  };
  // Nothing: the buffer is not in shared memory.
  std::optional<MappedMemory> mapped_memory(const RemoteBuffer& buffer);

  // Fails the connection with `error`, unless it has failed already, and closes the stream, if need
  // be later (MappedMemory). `fault`: what the peer did wrong, if anything.
  void close(Error error, FrameFault fault = FrameFault::none);
  bool failed() const { return error_.has_value(); }
  // The connection has failed because the peer has ended the stream, or has died.
  bool ended_by_peer() const { return ended_by_peer_; }
  const std::optional<Error>& close_reason() const { return error_; }
  // The peer's protocol violation that failed the connection; none: another reason.
  FrameFault fault() const { return fault_; }

 private:
  struct PushWait;
  struct PullWait;
  // Encoded frames, and the payload of the last one.
  struct Outgoing {
    std::string bytes;
    const std::byte* payload = nullptr;
    size_t payload_size = 0;
    size_t written = 0;        // bytes of both
    bool zeros = false;        // the owner of the payload is gone: send zeros
    uint64_t token = 0;        // pull reply: the exposure that owns the payload
    PushWait* push = nullptr;  // push: the call that owns the payload
    FilePlace file = {};       // push_file(): where the payload is
    bool answers_pull = false;
    size_t copied = 0;  // payload bytes inside `bytes`
    size_t size() const { return bytes.size() + payload_size; }
  };
  // The destination of the payload that is being received.
  struct Incoming {
    enum class To : uint8_t { nobody, sink, pull } to = To::nobody;
    uint64_t id = 0;  // token of the exposure, or ticket of the pull
    uint64_t offset = 0;
    size_t left = 0;
  };
  // A requested part of a pull.
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
  void unexpose(const RemoteBuffer& buffer);
  Result<void> transfer_result(Result<void> result) const;
  void queue(Outgoing piece);
  void account(size_t frame, size_t payload);
  void send_frame(const FrameHeader& head, std::string_view message);
  void announce_regions();
  Outgoing& last_piece();
  void send_copy(uint64_t token, uint64_t offset, ByteView from);
  void flush();
  Task<Result<void>> push_segments(RemoteBuffer sink, uint64_t offset, ByteView from,
                                   FilePlace file);
  Result<bool> write_some();
  void written(size_t bytes);
  Task<void> flush_when_writable();

  Result<std::optional<Frame>> parse(FrameFault& fault);
  Result<size_t> read_some();
  Result<void> handle_bulk(const FrameHeader& head, ByteView message);
  Result<void> handle_push(const FrameHeader& head, ByteView message);
  Result<void> handle_pull(const FrameHeader& head, ByteView message);
  Result<void> handle_pull_reply(const FrameHeader& head, ByteView message);
  Result<void> handle_region(const FrameHeader& head, ByteView message);
  ByteSpan incoming_memory();
  void on_payload(size_t bytes);

  Loop& loop_;
  std::string peer_;
  std::string local_;
  PeerProof proof_;
  std::optional<Error> error_;
  FrameFault fault_ = FrameFault::none;
  std::map<uint64_t, Exposed> exposed_;
  uint64_t next_token_ = 1;

  std::deque<Outgoing> outgoing_;
  std::string spare_;         // capacity for the next frames
  size_t queued_ = 0;         // bytes, payloads included
  size_t queued_frames_ = 0;  // bytes of headers and messages
  size_t gathered_ = 0;       // frames queued since the last write
  bool waits_to_write_ = false;
  std::unique_ptr<Flush> flush_;
  Event send_space_;
  Event flushed_;

  int64_t last_receive_ns_ = 0;
  std::vector<std::byte> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t in_needed_ = kFrameHeaderBytes;  // contiguous bytes that parse() waits for
  Incoming incoming_;
  std::map<uint64_t, PullSegment> pulls_;  // by ticket
  uint64_t next_ticket_ = 1;
  size_t pulls_to_answer_ = 0;

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Bulk> bulk_;
  size_t mapped_uses_ = 0;  // MappedMemory that is held
  bool ended_by_peer_ = false;
  Gate gate_;
};

}  // namespace ff::net
