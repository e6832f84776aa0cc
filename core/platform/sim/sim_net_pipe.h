// One direction of a simulated connection, and the stream that combines two of them. Private to
// sim_net.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "platform/net/stream.h"
#include "platform/sim/sim_net.h"

namespace ff::sim {

// Bytes in flight from one node to another. Lives as long as one of its ends, or bytes in flight.
class SimPipe final : private Runnable {
 public:
  using Direction = std::pair<std::string, std::string>;  // from, to

  SimPipe(SimNet& net, uint64_t id, Direction direction);

  const Direction& direction() const { return direction_; }
  // The pipe of the other direction, which carries resets.
  void set_reverse(const std::shared_ptr<SimPipe>& reverse) { reverse_ = reverse; }
  // The events of the ends; null once an end is destroyed.
  void set_reader(Event* readable) { readable_ = readable; }
  void set_writer(Event* writable) { writable_ = writable; }

  size_t space() const;
  void write(std::string bytes);
  size_t buffered() const { return buffer_.size() - read_; }
  size_t read(ByteSpan into);
  bool ended() const { return ended_; }
  bool was_reset() const { return reset_; }

  // The writer closed: the end follows its bytes. Or the writer was reset: the reset may overtake
  // some of them.
  void end();
  void reset(Rng& rng);
  // Drops a random part of the bytes in flight.
  void drop_some(Rng& rng);
  // The reader is destroyed: arriving bytes reset the other direction.
  void drop_reader();
  // Called when the link has changed.
  void on_link_change();

 private:
  struct Segment {
    int64_t at_ns = 0;
    std::string bytes = {};
    bool end = false;
    bool reset = false;
  };
  void transmit(Segment segment);
  void on_wake() override;
  void deliver(Segment segment);

  SimNet& net_;
  const uint64_t id_;
  const Direction direction_;
  std::weak_ptr<SimPipe> reverse_;
  std::deque<Segment> in_flight_;
  size_t in_flight_bytes_ = 0;
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
