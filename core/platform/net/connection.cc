// connection.cc: sending and exposures; connection_receive.cc handles received frames.
#include "platform/net/connection.h"

#include <algorithm>
#include <array>

#include "platform/net/connection_internal.h"

namespace ff::net {

namespace {

constexpr size_t kPiecesAWrite = 64;
// Frames are appended to one piece up to this size.
constexpr size_t kStreamPieceBytes = 64 * kKiB;
constexpr size_t kZeroBytes = 64 * kKiB;
// Frames are written in batches of this size, not only at the end of a turn, so that the peer can
// start to work earlier.
constexpr size_t kBatch = 8;
// Pushes up to this size are copied into the frame buffer: cheaper than a separate payload.
constexpr size_t kCopiedMax = 8 * kKiB;

ByteView zeros(size_t size) {
  static constexpr std::array<std::byte, kZeroBytes> kZeros{};
  return ByteView(kZeros).first(std::min(size, kZeros.size()));
}

Result<void> check_range(const RemoteBuffer& buffer, uint64_t offset, size_t size) {
  if (offset <= buffer.size && size <= buffer.size - offset) return {};
  return fail(Errc::usage, "bytes {} to {} are outside the peer's memory of {} bytes", offset,
              offset + size, buffer.size);
}

}  // namespace

// Writes the frames of an incomplete batch at the end of a turn.
class Connection::Flush final : public Runnable {
 public:
  explicit Flush(Connection& connection) : connection_(connection) {}
  void on_wake() override { connection_.flush(); }

 private:
  Connection& connection_;
};

Connection::Connection(Loop& loop, std::unique_ptr<Stream> stream, std::unique_ptr<Bulk> bulk)
    : loop_(loop),
      peer_(stream->peer()),
      local_(stream->local()),
      flush_(std::make_unique<Flush>(*this)),
      send_space_(loop),
      flushed_(loop),
      last_receive_ns_(loop.now_ns()),
      stream_(std::move(stream)),
      bulk_(std::move(bulk)),
      gate_(loop) {
  send_space_.set();
  flushed_.set();
}

Connection::~Connection() { FF_CHECK(mapped_uses_ == 0); }

// The piece to which the next frame is appended.
Connection::Outgoing& Connection::last_piece() {
  if (outgoing_.empty() || outgoing_.back().payload_size > 0 ||
      outgoing_.back().bytes.size() >= kStreamPieceBytes) {
    outgoing_.emplace_back();
    outgoing_.back().bytes = std::exchange(spare_, {});
  }
  return outgoing_.back();
}

void Connection::send(const FrameHeader& head, std::string_view message) {
  if (bulk_ != nullptr) announce_regions();
  send_frame(head, message);
}

void Connection::announce_regions() {
  while (const auto region = error_ ? std::nullopt : bulk_->next_region_update()) {
    if (region->fd >= 0) stream_->send_descriptor(region->fd);
    send_frame({.kind = FrameKind::region}, as_text(region_message(*region)));
  }
}

void Connection::send_frame(const FrameHeader& head, std::string_view message) {
  if (error_) return;
  std::string& bytes = last_piece().bytes;
  const size_t before = bytes.size();
  append_frame(bytes, head, message);
  account(bytes.size() - before, 0);
}

void Connection::queue(Outgoing piece) {
  const size_t frame = piece.bytes.size();
  const size_t payload = piece.payload_size;
  outgoing_.push_back(std::move(piece));
  account(frame, payload);
}

// Accounts for a queued frame of `frame` bytes and its payload, and flushes when due.
void Connection::account(size_t frame, size_t payload) {
  queued_ += frame + payload;
  queued_frames_ += frame;
  flushed_.reset();
  if (queued_ >= kSendQueueHighWater) send_space_.reset();
  if (queued_frames_ > kSendQueueMax) {
    return close(fail(Errc::unreachable, "{}: the peer does not read what it is sent", peer_));
  }
  if (waits_to_write_) return;
  if (payload == 0) gathered_++;
  if (gathered_ < kBatch && queued_ < kStreamPieceBytes) return loop_.wake_at_turn_end(*flush_);
  flush();
}

Task<Result<void>> Connection::wait_for_send_space() {
  FF_CO_TRY(co_await send_space_.wait());
  if (error_) co_return *error_;
  co_return {};
}

Task<Result<void>> Connection::wait_flushed() {
  FF_CO_TRY(co_await flushed_.wait());
  if (error_) co_return *error_;
  co_return {};
}

void Connection::flush() {
  gathered_ = 0;
  while (!error_ && !outgoing_.empty()) {
    auto wrote = write_some();
    if (!wrote) {
      Error& error = wrote.error();
      const FrameFault fault = blame(error, FrameFault::transport);
      ended_by_peer_ = true;
      return close(std::move(error).with_context(peer_ + ": "), fault);
    }
    if (*wrote) continue;
    waits_to_write_ = true;
    gate_.spawn(flush_when_writable());
    return;
  }
}

Task<void> Connection::flush_when_writable() {
  const auto waited = co_await stream_->writable().wait();
  waits_to_write_ = false;
  if (waited) flush();
}

// One gathered write; false if the stream accepts nothing now.
Result<bool> Connection::write_some() {
  std::array<ByteView, 2 * kPiecesAWrite> views;
  size_t count = 0;
  FilePlace file;
  size_t file_bytes = 0;
  for (const Outgoing& piece : outgoing_) {
    if (count + 2 > views.size()) break;
    if (piece.written < piece.bytes.size()) {
      views[count++] = as_bytes(piece.bytes).subspan(piece.written);
    }
    const size_t done = std::max(piece.written, piece.bytes.size()) - piece.bytes.size();
    const size_t rest = piece.payload_size - done;
    if (rest == 0) continue;
    if (piece.file.fd >= 0 && !piece.zeros) {
      file = {.fd = piece.file.fd, .offset = piece.file.offset + done};
      file_bytes = rest;
      break;
    }
    views[count++] = piece.zeros ? zeros(rest) : ByteView(piece.payload + done, rest);
    if (views[count - 1].size() < rest) break;
  }
  const auto head = std::span(views).first(count);
  FF_TRY(const auto wrote, file_bytes > 0 ? stream_->try_write_file(head, file, file_bytes)
                                          : stream_->try_write(head));
  if (!wrote) return false;
  written(*wrote);
  return true;
}

void Connection::written(size_t bytes) {
  queued_ -= bytes;
  while (bytes > 0) {
    Outgoing& piece = outgoing_.front();
    const size_t part = std::min(bytes, piece.size() - piece.written);
    piece.written += part;
    bytes -= part;
    if (piece.written < piece.size()) break;
    queued_frames_ -= piece.bytes.size() - piece.copied;
    if (piece.push != nullptr) piece.push->segment_done();
    if (piece.answers_pull) pulls_to_answer_--;
    if (piece.bytes.capacity() > spare_.capacity() && piece.bytes.size() <= 2 * kStreamPieceBytes) {
      spare_ = std::move(piece.bytes);
      spare_.clear();
    }
    outgoing_.pop_front();
  }
  if (queued_ < kSendQueueHighWater) send_space_.set();
  if (outgoing_.empty()) flushed_.set();
}

void Connection::close(Error error, FrameFault fault) {
  if (error_) return;
  error_ = std::move(error);
  fault_ = fault;
  for (const Outgoing& piece : outgoing_) {
    if (piece.push != nullptr) piece.push->segment_done();
  }
  outgoing_.clear();
  queued_ = queued_frames_ = 0;
  for (auto& [ticket, segment] : pulls_) segment.pull->done.set();
  if (bulk_ != nullptr) bulk_->close();
  send_space_.set();
  flushed_.set();
  stream_->readable().set();  // receive() ends
  stream_->writable().set();
  if (mapped_uses_ == 0) stream_->close();
}

Connection::Exposure::~Exposure() {
  if (connection_ != nullptr) connection_->unexpose(buffer_);
}

Result<Connection::Exposure> Connection::expose_sink(ByteSpan memory) {
  return expose(memory, true);
}

Result<Connection::Exposure> Connection::expose_source(ByteView memory) {
  return expose({const_cast<std::byte*>(memory.data()), memory.size()}, false);
}

Result<Connection::Exposure> Connection::expose(ByteSpan memory, bool writable) {
  Exposure exposure;
  exposure.buffer_ = {.token = next_token_, .size = memory.size()};
  if (bulk_ != nullptr) {
    FF_TRY(bulk_->register_memory(memory, writable, exposure.buffer_));
    announce_regions();
  }
  exposed_[next_token_++] = {memory.data(), memory.size(), writable};
  exposure.connection_ = this;
  return exposure;
}

void Connection::unexpose(const RemoteBuffer& buffer) {
  if (bulk_ != nullptr) bulk_->deregister_memory(buffer);
  exposed_.erase(buffer.token);
  for (Outgoing& piece : outgoing_) {
    if (piece.token == buffer.token) piece.zeros = true;
  }
}

// The result of a Bulk transfer; adds the peer's name to errors that are the peer's fault.
Result<void> Connection::transfer_result(Result<void> result) const {
  if (error_) return *error_;
  if (result) return {};
  Error error = std::move(result).error();
  if (error.code != Errc::corrupt && error.code != Errc::unreachable) return error;
  return std::move(error).with_context(peer_ + ": ");
}

Task<Result<void>> Connection::push(RemoteBuffer sink, uint64_t offset, ByteView from) {
  FF_CO_TRY(check_range(sink, offset, from.size()));
  if (error_) co_return *error_;
  if (bulk_ != nullptr && sink.key != 0) {
    co_return transfer_result(co_await bulk_->push(sink, offset, from));
  }
  if (from.empty()) co_return Result<void>();
  if (from.size() <= kCopiedMax) {
    if (!send_space_.is_set()) FF_CO_TRY(co_await wait_for_send_space());
    send_copy(sink.token, offset, from);
    if (error_) co_return *error_;
    co_return Result<void>();
  }
  const FilePlace none;
  co_return co_await push_segments(sink, offset, from, none);
}

Task<Result<void>> Connection::push_file(RemoteBuffer sink, uint64_t offset, ByteView from,
                                         FilePlace file) {
  if (!pushes_files() || from.size() <= kCopiedMax) co_return co_await push(sink, offset, from);
  FF_CO_TRY(check_range(sink, offset, from.size()));
  if (error_) co_return *error_;
  co_return co_await push_segments(sink, offset, from, file);
}

Task<Result<void>> Connection::push_segments(RemoteBuffer sink, uint64_t offset, ByteView from,
                                             FilePlace file) {
  PushWait wait(*this);
  while (!from.empty()) {
    FF_CO_TRY(co_await wait_for_send_space());
    const ByteView part = from.first(std::min(from.size(), kSegmentBytes));
    Outgoing piece;
    append_frame(piece.bytes, {.kind = FrameKind::push}, as_text(push_message(sink.token, offset)),
                 static_cast<uint32_t>(part.size()));
    piece.payload = part.data();
    piece.payload_size = part.size();
    piece.push = &wait;
    piece.file = file;
    wait.segments++;
    wait.done.reset();
    queue(std::move(piece));
    from = from.subspan(part.size());
    offset += part.size();
    file.offset += part.size();
  }
  FF_CO_TRY(co_await wait.done.wait());
  if (error_) co_return *error_;
  co_return {};
}

// A small push, copied into the frame buffer.
void Connection::send_copy(uint64_t token, uint64_t offset, ByteView from) {
  Outgoing& piece = last_piece();
  const size_t before = piece.bytes.size();
  append_frame(piece.bytes, {.kind = FrameKind::push}, as_text(push_message(token, offset)),
               static_cast<uint32_t>(from.size()));
  const size_t frame = piece.bytes.size() - before;
  piece.bytes.append(as_text(from));
  piece.copied += from.size();
  account(frame, from.size());
}

// The headers of an abandoned push already announce its length, so zeros replace its bytes.
Connection::PushWait::~PushWait() {
  for (Outgoing& piece : connection.outgoing_) {
    if (piece.push != this) continue;
    piece.push = nullptr;
    piece.zeros = true;
  }
}

Task<Result<void>> Connection::pull(RemoteBuffer source, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(check_range(source, offset, into.size()));
  if (error_) co_return *error_;
  if (bulk_ != nullptr && source.key != 0) {
    co_return transfer_result(co_await bulk_->pull(source, offset, into));
  }
  PullWait wait(*this);
  while (!into.empty()) {
    FF_CO_TRY(co_await wait.slot());
    if (error_) co_return *error_;
    const ByteSpan part = into.first(std::min(into.size(), kSegmentBytes));
    const uint64_t ticket = next_ticket_++;
    pulls_[ticket] = {&wait, part};
    wait.segments++;
    send({.kind = FrameKind::pull},
         as_text(pull_message({source.token, offset, ticket, static_cast<uint32_t>(part.size())})));
    into = into.subspan(part.size());
    offset += part.size();
  }
  while (wait.segments > 0 && !error_) FF_CO_TRY(co_await wait.progress());
  if (error_) co_return *error_;
  co_return {};
}

// Bytes that still arrive for an abandoned pull are dropped.
Connection::PullWait::~PullWait() {
  std::erase_if(connection.pulls_, [this](const auto& entry) { return entry.second.pull == this; });
}

Connection::MappedMemory::MappedMemory(Connection& connection, ByteSpan bytes)
    : connection_(&connection), bytes_(bytes) {
  connection_->mapped_uses_++;
}

Connection::MappedMemory::~MappedMemory() {
  if (connection_ == nullptr || --connection_->mapped_uses_ > 0) return;
  if (connection_->error_) connection_->stream_->close();
}

std::optional<Connection::MappedMemory> Connection::mapped_memory(const RemoteBuffer& buffer) {
  if (bulk_ == nullptr || buffer.key == 0 || error_) return std::nullopt;
  const auto bytes = bulk_->mapped_memory(buffer);
  if (!bytes) return std::nullopt;
  return MappedMemory(*this, *bytes);
}

}  // namespace ff::net
