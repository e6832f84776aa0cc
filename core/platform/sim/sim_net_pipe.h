// One direction of a simulated connection, and the stream ends that hold two of them. The insides
// of sim_net.h.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "platform/net/stream.h"
#include "platform/sim/sim_net.h"

namespace ff::sim {

// Bytes on their way from one node to another. Lives as long as one of its ends or bytes do.
class SimPipe final : private Ready {
 public:
  using Direction = std::pair<std::string, std::string>;  // from, to

  SimPipe(SimNet& net, uint64_t id, Direction direction);

  const Direction& direction() const { return direction_; }
  // The pipe that goes the other way: a reset takes that.
  void set_reverse(const std::shared_ptr<SimPipe>& reverse) { reverse_ = reverse; }
  // The ends' events; null once they have gone.
  void set_reader(Event* readable) { readable_ = readable; }
  void set_writer(Event* writable) { writable_ = writable; }

  size_t space() const;
  void write(std::string bytes);
  size_t buffered() const { return buffer_.size() - read_; }
  size_t read(ByteSpan into);
  bool ended() const { return ended_; }
  bool was_reset() const { return reset_; }

  // The writer has closed, in order behind its bytes; or was reset, ahead of some of them.
  void end();
  void reset(Rng& rng);
  // What is still under way is lost, in part.
  void lose_some(Rng& rng);
  // Nobody reads any more: what arrives resets the other direction.
  void drop_reader();
  // Something about the link has changed.
  void look_again();

 private:
  struct Segment {
    int64_t at_ns = 0;
    std::string bytes = {};
    bool end = false;
    bool reset = false;
  };
  void fly(Segment segment);
  void fire() override;
  void deliver(Segment segment);

  SimNet& net_;
  const uint64_t id_;
  const Direction direction_;
  std::weak_ptr<SimPipe> reverse_;
  std::deque<Segment> flying_;
  size_t flying_bytes_ = 0;
  int64_t line_free_ns_ = 0;
  int64_t last_at_ns_ = 0;
  std::string buffer_;
  size_t read_ = 0;
  bool ended_ = false;
  bool reset_ = false;
  bool reader_gone_ = false;
  Event* readable_ = nullptr;
  Event* writable_ = nullptr;
  Timer timer_;
};

class SimStream final : public net::Stream {
 public:
  SimStream(Loop& loop, std::shared_ptr<SimPipe> out, std::shared_ptr<SimPipe> in,
            std::string peer);
  ~SimStream() override;

  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override;
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override;
  Event& readable() override { return readable_; }
  Event& writable() override { return writable_; }
  void close() override;
  std::string peer() const override { return peer_ + " (sim)"; }
  std::string local() const override { return out_->direction().first; }

 private:
  std::shared_ptr<SimPipe> out_;
  std::shared_ptr<SimPipe> in_;
  const std::string peer_;
  bool closed_ = false;
  Event readable_;
  Event writable_;
};

}  // namespace ff::sim
