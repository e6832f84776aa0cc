// verbs_messages.cc: the messages of a queue, and the credits that let them go.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/net/verbs_queue_work.h"

namespace ff::net {

namespace {

constexpr uint16_t kEnd = 1;  // flag: nothing follows
// Credits are returned alone only while another empty message can be sent: the end.
constexpr uint16_t kEmptySendsForEnd = 1;

// Gathers pieces.
class Pieces {
 public:
  explicit Pieces(std::span<const ByteView> pieces) : left_(pieces) {}

  // Bytes copied; fewer than `into` has room for at the end only.
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

Result<void> VerbsQueue::post_receive(uint16_t buffer) {
  ibv_sge place = {};
  place.addr = reinterpret_cast<uintptr_t>(receive_buffer(buffer));
  place.length = kMessageBytes;
  place.lkey = buffers_hold_.local_key();
  ibv_recv_wr work = {};
  work.wr_id = Work{Work::Kind::receive, buffer}.id();
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int err = ::ibv_post_recv(pair_.get(), &work, &bad);
  if (err != 0) return errno_error(err, device_.name() + ": RECV");
  return {};
}

Result<void> VerbsQueue::post_send(uint16_t buffer, size_t size, uint16_t flags) {
  ibv_sge place = {};
  place.addr = reinterpret_cast<uintptr_t>(send_buffer(buffer));
  place.length = static_cast<uint32_t>(size);
  place.lkey = buffers_hold_.local_key();
  ibv_send_wr work = {};
  work.wr_id = Work{size > 0 ? Work::Kind::send : Work::Kind::empty_send, buffer}.id();
  work.sg_list = &place;
  work.num_sge = size > 0 ? 1 : 0;
  work.opcode = IBV_WR_SEND_WITH_IMM;
  work.imm_data = htonl(uint32_t{flags} << 16 | owed_);
  ibv_send_wr* bad = nullptr;
  const int err = ::ibv_post_send(pair_.get(), &work, &bad);
  if (err != 0) return errno_error(err, device_.name() + ": SEND");
  owed_ = 0;
  if (size > 0) {
    credits_--;
  } else {
    free_empty_sends_--;
  }
  return {};
}

Result<std::optional<size_t>> VerbsQueue::write(std::span<const ByteView> from) {
  if (pair_ == nullptr || closed_) return gone();
  Pieces pieces(from);
  size_t done = 0;
  while (credits_ > 0 && !free_sends_.empty()) {
    const uint16_t buffer = free_sends_.back();
    const size_t size = pieces.copy({send_buffer(buffer), message_max_});
    if (size == 0) break;
    if (auto posted = post_send(buffer, size, 0); !posted) {
      lose(std::move(posted).error());
      return gone();
    }
    free_sends_.pop_back();
    done += size;
  }
  if (done > 0) return std::optional(done);
  writable.reset();
  return std::optional<size_t>();
}

Result<std::optional<size_t>> VerbsQueue::read(std::span<const ByteSpan> into) {
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

// Read: the device may fill it again.
void VerbsQueue::release(uint16_t buffer) {
  if (pair_ == nullptr) return;
  if (auto posted = post_receive(buffer); !posted) return lose(std::move(posted).error());
  owed_++;
  device_.loop().wake_late(*credit_return_);
}

void VerbsQueue::return_credits() {
  if (pair_ == nullptr || closed_ || owed_ < kReceives / 2) return;
  if (free_empty_sends_ <= kEmptySendsForEnd) return;
  if (auto posted = post_send(0, 0, 0); !posted) lose(std::move(posted).error());
}

Result<void> VerbsQueue::take_receive(const ibv_wc& done, uint16_t buffer) {
  if ((done.wc_flags & IBV_WC_WITH_IMM) == 0 || done.byte_len > kMessageBytes) {
    return fail(Errc::corrupt, "a message of {} bytes that is not one of ff", done.byte_len);
  }
  const uint32_t word = ntohl(done.imm_data);
  const uint32_t credits = word & 0xffff;
  if (credits > uint32_t{credits_max_} - credits_) {
    return fail(Errc::corrupt, "the peer returned {} credits more than it has", credits);
  }
  credits_ = static_cast<uint16_t>(credits_ + credits);
  if ((word >> 16 & kEnd) != 0) {
    ended_ = true;
    return {};
  }
  if (done.byte_len == 0) return post_receive(buffer);
  if (received_.size() >= kReceives) {
    return fail(Errc::corrupt, "the peer sent more than it had credits for");
  }
  received_.push_back({buffer, 0, done.byte_len});
  readable.set();
  return {};
}

void VerbsQueue::finish() {
  if (closed_) return;
  closed_ = true;
  readable.set();
  writable.set();
  if (pair_ == nullptr) return;
  if (!cut_peer_off() || !post_send(0, 0, kEnd)) return shut();
  device_.linger(shared_from_this());
}

// From here on the owners of exposed memory may free it; the queue pair lives on until the last
// messages have arrived, but serves no WRITE and no READ of the peer's.
Result<void> VerbsQueue::cut_peer_off() {
  ibv_qp_attr wanted = {};
  wanted.qp_access_flags = 0;
  const int err = ::ibv_modify_qp(pair_.get(), &wanted, IBV_QP_ACCESS_FLAGS);
  if (err != 0) return errno_error(err, device_.name());
  return {};
}

}  // namespace ff::net
