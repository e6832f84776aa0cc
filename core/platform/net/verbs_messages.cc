// verbs_messages.cc: sending and receiving of messages, and flow control with credits.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/net/verbs_queue_pair_work_request.h"

namespace ff::net {

namespace {

constexpr uint16_t kEnd = 1;  // flag: nothing follows
// Empty sends reserved for the end of stream; credit messages use the others.
constexpr uint16_t kEmptySendsForEnd = 1;

// Copies a list of pieces into send buffers.
class Pieces {
 public:
  explicit Pieces(std::span<const ByteView> pieces) : left_(pieces) {}

  // Returns the number of bytes copied; less than the size of `into` only at the end.
  size_t copy(ByteSpan into) {
    size_t done = 0;
    while (!left_.empty() && done < into.size()) {
      const ByteView piece = left_.front().subspan(at_);
      const size_t part = std::min(piece.size(), into.size() - done);
      if (part > 0) std::memcpy(into.data() + done, piece.data(), part);
      done += part;
      at_ += part;
      if (part < piece.size()) break;
      left_ = left_.subspan(1);
      at_ = 0;
    }
    return done;
  }

 private:
  std::span<const ByteView> left_;
  size_t at_ = 0;  // in the first of them
};

}  // namespace

Result<void> VerbsQueuePair::post_receive(uint16_t buffer) {
  ibv_sge place = {};
  place.addr = reinterpret_cast<uintptr_t>(receive_buffer(buffer));
  place.length = kMessageBytes;
  place.lkey = buffers_hold_.local_key();
  ibv_recv_wr work = {};
  work.wr_id = WorkRequestId{WorkRequestId::Kind::receive, buffer}.id();
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int err = ::ibv_post_recv(pair_.get(), &work, &bad);
  if (err != 0) return errno_error(err, device_.name() + ": RECV");
  return {};
}

Result<void> VerbsQueuePair::post_send(uint16_t buffer, size_t size, uint16_t flags) {
  ibv_sge place = {};
  place.addr = reinterpret_cast<uintptr_t>(send_buffer(buffer));
  place.length = static_cast<uint32_t>(size);
  place.lkey = buffers_hold_.local_key();
  ibv_send_wr work = {};
  work.wr_id =
      WorkRequestId{size > 0 ? WorkRequestId::Kind::send : WorkRequestId::Kind::empty_send, buffer}
          .id();
  work.sg_list = &place;
  work.num_sge = size > 0 ? 1 : 0;
  work.opcode = IBV_WR_SEND_WITH_IMM;
  work.imm_data = htonl(uint32_t{flags} << 16 | owed_credits_);
  ibv_send_wr* bad = nullptr;
  const int err = ::ibv_post_send(pair_.get(), &work, &bad);
  if (err != 0) return errno_error(err, device_.name() + ": SEND");
  owed_credits_ = 0;
  if (size > 0) {
    credits_--;
  } else {
    free_empty_sends_--;
  }
  return {};
}

Result<std::optional<size_t>> VerbsQueuePair::write(std::span<const ByteView> from) {
  if (pair_ == nullptr || closed_) return closed_error();
  Pieces pieces(from);
  size_t done = 0;
  while (credits_ > 0 && !free_sends_.empty()) {
    const uint16_t buffer = free_sends_.back();
    const size_t size = pieces.copy({send_buffer(buffer), message_max_});
    if (size == 0) break;
    if (auto posted = post_send(buffer, size, 0); !posted) {
      set_failed(std::move(posted).error());
      return closed_error();
    }
    free_sends_.pop_back();
    done += size;
  }
  if (done > 0) return std::optional(done);
  writable.reset();
  return std::optional<size_t>();
}

Result<std::optional<size_t>> VerbsQueuePair::read(std::span<const ByteSpan> into) {
  size_t got = 0;
  for (ByteSpan piece : into) {
    while (!piece.empty() && !received_.empty()) {
      Received& next = received_.front();
      const size_t part = std::min<size_t>(piece.size(), next.end - next.begin);
      std::memcpy(piece.data(), receive_buffer(next.buffer) + next.begin, part);
      piece = piece.subspan(part);
      next.begin += static_cast<uint32_t>(part);
      got += part;
      if (next.begin < next.end) continue;
      const uint16_t buffer = next.buffer;
      received_.pop_front();
      release(buffer);
    }
  }
  if (got > 0) return std::optional(got);
  if (error_) return *error_;
  if (ended_) return std::optional<size_t>(0);
  if (closed_ || pair_ == nullptr) return fail(Errc::unreachable, "the connection is closed");
  readable.reset();
  return std::optional<size_t>();
}

// The buffer has been read: posts it as a receive again.
void VerbsQueuePair::release(uint16_t buffer) {
  if (pair_ == nullptr) return;
  if (auto posted = post_receive(buffer); !posted) return set_failed(std::move(posted).error());
  owed_credits_++;
  device_.loop().wake_at_turn_end(*credit_return_);
}

void VerbsQueuePair::return_credits() {
  if (pair_ == nullptr || closed_ || owed_credits_ < kReceives / 2) return;
  if (free_empty_sends_ <= kEmptySendsForEnd) return;
  if (auto posted = post_send(0, 0, 0); !posted) set_failed(std::move(posted).error());
}

Result<void> VerbsQueuePair::handle_receive(const ibv_wc& done, uint16_t buffer) {
  if ((done.wc_flags & IBV_WC_WITH_IMM) == 0 || done.byte_len > kMessageBytes) {
    return fail(Errc::corrupt, "a message of {} bytes that is not one of ff", done.byte_len);
  }
  const uint32_t word = ntohl(done.imm_data);
  const uint32_t credits = word & 0xffff;
  if (credits > uint32_t{credits_max_} - credits_) {
    return fail(Errc::corrupt, "the peer returned {} credits, more than it had received", credits);
  }
  credits_ = static_cast<uint16_t>(credits_ + credits);
  if ((word >> 16 & kEnd) != 0) {
    ended_ = true;
    return {};
  }
  if (done.byte_len == 0) return post_receive(buffer);
  if (received_.size() >= kReceives) {
    return fail(Errc::corrupt, "the peer sent more messages than it had credits");
  }
  received_.push_back({buffer, 0, done.byte_len});
  readable.set();
  return {};
}

void VerbsQueuePair::finish() {
  if (closed_) return;
  closed_ = true;
  readable.set();
  writable.set();
  if (pair_ == nullptr) return;
  if (!revoke_remote_access() || !post_send(0, 0, kEnd)) return destroy_pair();
  device_.linger(shared_from_this());
}

// Afterwards exposed memory may be freed: the queue pair stays until the last messages are
// acknowledged, but serves no WRITE or READ of the peer.
Result<void> VerbsQueuePair::revoke_remote_access() {
  ibv_qp_attr wanted = {};
  wanted.qp_access_flags = 0;
  const int err = ::ibv_modify_qp(pair_.get(), &wanted, IBV_QP_ACCESS_FLAGS);
  if (err != 0) return errno_error(err, device_.name());
  return {};
}

}  // namespace ff::net
