// sim_net_pipe.cc: the delivery of bytes, and resets.
#include "platform/sim/sim_net_pipe.h"

#include <algorithm>
#include <cstring>

#include "platform/base/check.h"

namespace ff::sim {

namespace {

constexpr size_t kWindow = 256 * kKiB;  // bytes written and not yet read

}  // namespace

SimPipe::SimPipe(SimNet& net, uint64_t id, Direction direction)
    : net_(net), id_(id), direction_(std::move(direction)), timer_(net.world_.loop()) {}

size_t SimPipe::space() const {
  const size_t used = in_flight_bytes_ + buffered();
  return used >= kWindow ? 0 : kWindow - used;
}

void SimPipe::transmit(Segment segment) {
  const SimLink& link = net_.link(direction_);
  const int64_t now = net_.world_.now_ns();
  line_free_ns_ = std::max(line_free_ns_, now) +
                  static_cast<int64_t>(segment.bytes.size() * kSecond / link.bytes_per_second);
  const int64_t jitter = static_cast<int64_t>(
      net_.rng_.below(static_cast<uint64_t>(link.delay_max_ns - link.delay_min_ns) + 1));
  last_at_ns_ = std::max(last_at_ns_, line_free_ns_ + link.delay_min_ns + jitter);
  segment.at_ns = last_at_ns_;
  in_flight_bytes_ += segment.bytes.size();
  in_flight_.push_back(std::move(segment));
  if (in_flight_.size() == 1) timer_.set(in_flight_.front().at_ns, *this);
}

void SimPipe::write(std::string bytes) {
  // Splits the bytes into random pieces, as a network does.
  while (!bytes.empty()) {
    const size_t piece = net_.rng_.below(4) == 0 ? 1 + net_.rng_.below(bytes.size()) : bytes.size();
    transmit({.bytes = bytes.substr(0, piece)});
    bytes.erase(0, piece);
  }
}

size_t SimPipe::read(ByteSpan into) {
  const size_t count = std::min(buffered(), into.size());
  std::memcpy(into.data(), buffer_.data() + read_, count);
  read_ += count;
  if (read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  }
  if (count > 0 && writable_ != nullptr) writable_->set();
  return count;
}

void SimPipe::end() { transmit({.end = true}); }

void SimPipe::drop_some(Rng& rng) {
  const size_t keep = rng.below(in_flight_.size() + 1);
  while (in_flight_.size() > keep) {
    in_flight_bytes_ -= in_flight_.back().bytes.size();
    in_flight_.pop_back();
  }
}

void SimPipe::reset(Rng& rng) {
  drop_some(rng);
  transmit({.reset = true});
}

void SimPipe::drop_reader() {
  reader_gone_ = true;
  readable_ = nullptr;
}

void SimPipe::on_link_change() {
  if (!in_flight_.empty()) timer_.set(in_flight_.front().at_ns, *this);
}

void SimPipe::on_wake() {
  if (net_.blocked(direction_)) return;  // on_link_change() continues
  while (!in_flight_.empty() && in_flight_.front().at_ns <= net_.world_.now_ns()) {
    Segment segment = std::move(in_flight_.front());
    in_flight_.pop_front();
    in_flight_bytes_ -= segment.bytes.size();
    deliver(std::move(segment));
  }
  on_link_change();
}

void SimPipe::deliver(Segment segment) {
  if (ended_ || reset_) return;
  net_.note(id_, segment.bytes);
  if (reader_gone_) {
    // The machine answers bytes for a closed connection with a reset.
    const auto reverse = reverse_.lock();
    if (reverse != nullptr && !segment.bytes.empty() && !reverse->reset_) {
      reverse->transmit({.reset = true});
    }
    return;
  }
  buffer_ += segment.bytes;
  ended_ = segment.end;
  reset_ = segment.reset;
  if (readable_ != nullptr) readable_->set();
  const auto reverse = reverse_.lock();
  if (reset_ && reverse != nullptr && reverse->writable_ != nullptr) reverse->writable_->set();
}

SimStream::SimStream(Loop& loop, std::shared_ptr<SimPipe> out, std::shared_ptr<SimPipe> in,
                     std::string peer)
    : out_(std::move(out)),
      in_(std::move(in)),
      peer_(std::move(peer)),
      readable_(loop),
      writable_(loop) {
  in_->set_reader(&readable_);
  out_->set_writer(&writable_);
  readable_.set();
  writable_.set();
}

SimStream::~SimStream() {
  close();
  in_->drop_reader();
  out_->set_writer(nullptr);
}

Result<std::optional<size_t>> SimStream::try_read(std::span<const ByteSpan> into) {
  if (in_->was_reset()) return fail(Errc::unreachable, "{}: Connection reset by peer", peer());
  if (closed_ || (in_->buffered() == 0 && in_->ended())) return std::optional<size_t>(0);
  size_t total = 0;
  for (const ByteSpan piece : into) total += in_->read(piece);
  if (total > 0) return std::optional(total);
  readable_.reset();
  return std::optional<size_t>();
}

Result<std::optional<size_t>> SimStream::try_write(std::span<const ByteView> from) {
  if (closed_ || in_->was_reset()) {
    return fail(Errc::unreachable, "{}: Connection reset by peer", peer());
  }
  size_t space = out_->space();
  if (space == 0) {
    writable_.reset();
    return std::optional<size_t>();
  }
  std::string bytes;
  for (const ByteView piece : from) {
    const size_t part = std::min(space - bytes.size(), piece.size());
    bytes.append(as_text(piece.first(part)));
    if (part < piece.size()) break;
  }
  const size_t total = bytes.size();
  out_->write(std::move(bytes));
  return std::optional(total);
}

void SimStream::close() {
  if (std::exchange(closed_, true)) return;
  out_->end();
  readable_.set();
  writable_.set();
}

}  // namespace ff::sim
