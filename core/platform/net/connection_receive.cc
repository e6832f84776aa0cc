// connection_receive.cc: receiving frames. Headers and messages pass through a buffer; payloads
// are read from the stream directly into their destination, except for the first bytes that the
// buffer already holds.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "platform/net/connection_internal.h"

namespace ff::net {

namespace {

constexpr size_t kBufferBytes = 64 * kKiB;
// After a payload of at least kBufferBytes at most this many further bytes are read: the next
// header, and little of its payload, which would have to be copied.
constexpr size_t kBehindPayload = 4 * kKiB;
// Yields to other tasks after this many bytes without waiting.
constexpr size_t kTurnBytes = 1 * kMiB;

template <class... Fields>
auto packed(Fields... fields) {
  std::array<std::byte, (sizeof fields + ...)> out;
  size_t at = 0;
  const auto add = [&](auto field) {
    store_le(out.data() + at, field);
    at += sizeof field;
  };
  (add(fields), ...);
  return out;
}

Result<void> check_size(ByteView message, size_t size) {
  if (message.size() == size) return {};
  return fail(Errc::corrupt, "a bulk message of {} bytes instead of {}", message.size(), size);
}

// Scratch memory for bytes that are discarded.
ByteSpan drain(size_t size) {
  thread_local std::array<std::byte, kBufferBytes> bytes;
  return ByteSpan(bytes).first(std::min(size, bytes.size()));
}

}  // namespace

PushMessage push_message(uint64_t token, uint64_t offset) { return packed(token, offset); }

PullMessage pull_message(const PullMessageFields& request) {
  return packed(request.token, request.offset, request.ticket, request.length);
}

PullReplyMessage pull_reply_message(uint64_t ticket) { return packed(ticket); }

RegionMessage region_message(const Bulk::RegionUpdate& region) {
  return packed(region.id, uint32_t{0}, region.size);
}

Task<Result<Frame>> Connection::receive() {
  size_t unwaited = 0;
  for (;;) {
    if (error_) co_return *error_;
    FrameFault fault = FrameFault::none;
    auto frame = parse(fault);
    if (frame && *frame) co_return std::move(**frame);
    auto more = frame ? read_some() : Result<size_t>(std::move(frame).error());
    if (!more) {
      Error& error = more.error();
      if (fault == FrameFault::none) {
        fault = blame(error, frame ? FrameFault::transport : FrameFault::protocol);
      }
      if (!error_) ended_by_peer_ = frame.ok();
      close(std::move(error).with_context(peer_ + ": "), fault);
      co_return *error_;
    }
    unwaited += *more;
    if (*more == 0) {
      stream_->expect(incoming_.left);
      FF_CO_TRY(co_await stream_->readable().wait());
      unwaited = 0;
    } else if (unwaited >= kTurnBytes) {
      YieldWait yield(loop_);
      FF_CO_TRY(co_await yield);
      unwaited = 0;
    }
  }
}

// The next complete frame in the buffer, after handling frames of bulk kinds; empty if more bytes
// are needed. Sets `fault` for a malformed frame.
Result<std::optional<Frame>> Connection::parse(FrameFault& fault) {
  for (;;) {
    if (incoming_.left > 0) {
      const size_t have = std::min(in_end_ - in_begin_, incoming_.left);
      if (have == 0) return std::optional<Frame>();
      const ByteSpan to = incoming_memory();
      const size_t part = std::min(have, to.size());
      std::memcpy(to.data(), in_.data() + in_begin_, part);
      in_begin_ += part;
      on_payload(part);
      continue;
    }
    const ByteView have(in_.data() + in_begin_, in_end_ - in_begin_);
    if (have.size() < kFrameHeaderBytes) return std::optional<Frame>();
    FF_TRY(const FrameHeader head, parse_frame_header(have, fault));
    in_needed_ = kFrameHeaderBytes + head.message_len;
    if (have.size() < in_needed_) return std::optional<Frame>();
    const ByteView message = have.subspan(kFrameHeaderBytes, head.message_len);
    FF_TRY(check_message(head, as_text(message), fault));
    in_begin_ += in_needed_;
    in_needed_ = kFrameHeaderBytes;
    if (!is_bulk(head.kind)) return std::optional(Frame{head, std::string(as_text(message))});
    FF_TRY(handle_bulk(head, message));
  }
}

// Number of bytes read; 0 if none are available now.
Result<size_t> Connection::read_some() {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  if (in_begin_ > 0 && in_.size() - in_begin_ < in_needed_) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  if (in_.size() < std::max(in_needed_, kBufferBytes)) {
    in_.resize(std::max(in_needed_, kBufferBytes));
  }
  std::array<ByteSpan, 2> into;
  size_t count = 0;
  size_t direct = 0;
  if (incoming_.left > 0) {
    into[count++] = incoming_memory();
    direct = into[0].size();
  }
  // Reads beyond the payload, unless only a part of the payload has a destination.
  if (direct == incoming_.left) {
    const ByteSpan behind = ByteSpan(in_).subspan(in_end_);
    const size_t most = direct >= kBufferBytes ? kBehindPayload : behind.size();
    into[count++] = behind.first(std::min(behind.size(), most));
  }
  const auto read = stream_->try_read(std::span(into).first(count));
  if (!read && read.error().sys == EFAULT && incoming_.to == Incoming::To::sink) {
    // The owner of the sink's memory truncated it: discard the rest of the payload.
    incoming_.to = Incoming::To::nobody;
    return read_some();
  }
  FF_TRY(const auto got, read);
  if (!got) return size_t{0};
  if (*got == 0) return fail(Errc::unreachable, "the peer closed the connection");
  last_receive_ns_ = loop_.now_ns();
  const size_t part = std::min(*got, direct);
  if (part > 0) on_payload(part);
  in_end_ += *got - part;
  return *got;
}

ByteSpan Connection::incoming_memory() {
  if (incoming_.to == Incoming::To::sink) {
    const auto found = exposed_.find(incoming_.id);
    if (found != exposed_.end()) {
      return {found->second.memory + incoming_.offset, incoming_.left};
    }
  } else if (incoming_.to == Incoming::To::pull) {
    const auto found = pulls_.find(incoming_.id);
    if (found != pulls_.end()) return found->second.into.subspan(incoming_.offset);
  }
  return drain(incoming_.left);
}

void Connection::on_payload(size_t bytes) {
  incoming_.offset += bytes;
  incoming_.left -= bytes;
  if (incoming_.left > 0 || incoming_.to != Incoming::To::pull) return;
  const auto found = pulls_.find(incoming_.id);
  if (found == pulls_.end()) return;
  PullWait* const pull = found->second.pull;
  pulls_.erase(found);
  pull->segment_done();
}

Result<void> Connection::handle_bulk(const FrameHeader& head, ByteView message) {
  switch (head.kind) {
    case FrameKind::push: return handle_push(head, message);
    case FrameKind::pull: return handle_pull(head, message);
    case FrameKind::pull_reply: return handle_pull_reply(head, message);
    case FrameKind::region: return handle_region(head, message);
    default: FF_CHECK(!"not a bulk kind"); return {};
  }
}

Result<void> Connection::handle_push(const FrameHeader& head, ByteView message) {
  FF_TRY(check_size(message, std::tuple_size_v<PushMessage>));
  const auto token = load_le<uint64_t>(message.data());
  const auto offset = load_le<uint64_t>(message.data() + 8);
  incoming_ = {.to = Incoming::To::nobody, .id = token, .offset = offset, .left = head.payload_len};
  const auto found = exposed_.find(token);
  if (found == exposed_.end()) {
    if (token < next_token_) return {};  // the exposure has ended
    return fail(Errc::corrupt, "the peer pushed into memory that was never exposed to it");
  }
  const Exposed& sink = found->second;
  if (!sink.writable || offset > sink.size || head.payload_len > sink.size - offset) {
    return fail(Errc::corrupt, "the peer pushed {} bytes at offset {} of a {} of {} bytes",
                head.payload_len, offset, sink.writable ? "sink" : "source", sink.size);
  }
  incoming_.to = Incoming::To::sink;
  return {};
}

Result<void> Connection::handle_pull(const FrameHeader& head, ByteView message) {
  FF_TRY(check_size(message, std::tuple_size_v<PullMessage>));
  const PullMessageFields asked{
      load_le<uint64_t>(message.data()), load_le<uint64_t>(message.data() + 8),
      load_le<uint64_t>(message.data() + 16), load_le<uint32_t>(message.data() + 24)};
  if (head.payload_len > 0 || asked.length == 0 || asked.length > kSegmentBytes) {
    return fail(Errc::corrupt, "the peer sent an invalid pull of {} bytes", asked.length);
  }
  if (pulls_to_answer_ >= kPullsMax) {
    return fail(Errc::corrupt, "the peer has more than {} pulls in progress", kPullsMax);
  }
  Outgoing answer;
  append_frame(answer.bytes, {.kind = FrameKind::pull_reply},
               as_text(pull_reply_message(asked.ticket)), asked.length);
  const auto found = exposed_.find(asked.token);
  if (found == exposed_.end()) {
    if (asked.token >= next_token_) {
      return fail(Errc::corrupt, "the peer pulled from memory that was never exposed to it");
    }
    answer.zeros = true;  // the exposure has ended
  } else {
    const Exposed& source = found->second;
    if (source.writable || asked.offset > source.size ||
        asked.length > source.size - asked.offset) {
      return fail(Errc::corrupt, "the peer pulled {} bytes at offset {} of a {} of {} bytes",
                  asked.length, asked.offset, source.writable ? "sink" : "source", source.size);
    }
    answer.payload = source.memory + asked.offset;
    answer.token = asked.token;
  }
  answer.payload_size = asked.length;
  answer.answers_pull = true;
  pulls_to_answer_++;
  queue(std::move(answer));
  return {};
}

Result<void> Connection::handle_pull_reply(const FrameHeader& head, ByteView message) {
  FF_TRY(check_size(message, std::tuple_size_v<PullReplyMessage>));
  const auto ticket = load_le<uint64_t>(message.data());
  incoming_ = {.to = Incoming::To::nobody, .id = ticket, .offset = 0, .left = head.payload_len};
  const auto found = pulls_.find(ticket);
  if (found == pulls_.end()) {
    if (ticket < next_ticket_) return {};  // the pull was abandoned
    return fail(Errc::corrupt, "the peer answered a pull that was never sent");
  }
  if (head.payload_len != found->second.into.size()) {
    return fail(Errc::corrupt, "the peer answered a pull of {} bytes with {} bytes",
                found->second.into.size(), head.payload_len);
  }
  incoming_.to = Incoming::To::pull;
  return {};
}

Result<void> Connection::handle_region(const FrameHeader& head, ByteView message) {
  FF_TRY(check_size(message, std::tuple_size_v<RegionMessage>));
  const auto id = load_le<uint32_t>(message.data());
  const auto size = load_le<uint64_t>(message.data() + 8);
  if (size == 0 && bulk_ != nullptr) return bulk_->apply_region_update({.id = id});
  const auto fd = stream_->receive_descriptor();
  if (!fd || head.payload_len > 0) {
    return fail(Errc::corrupt, "the peer announced a region without its descriptor");
  }
  const Bulk::RegionUpdate region{id, size, *fd};
  if (bulk_ == nullptr) {
    ::close(*fd);
    return fail(Errc::corrupt, "the peer announced a shared region on a connection without them");
  }
  return bulk_->apply_region_update(region);
}

}  // namespace ff::net
