// The insides of a connection that both of its halves (connection.cc, connection_receive.cc) use.
#pragma once

#include <array>
#include <cstddef>

#include "platform/net/connection.h"

namespace ff::net {

struct Connection::PushWait {
  explicit PushWait(Connection& of) : connection(of), done(of.loop_) { done.set(); }
  ~PushWait();
  void segment_done() {
    if (--segments == 0) done.set();
  }

  Connection& connection;
  size_t segments = 0;
  Event done;
};

// Segments of one pull that have been asked for. A few at a time, so that the link never idles and
// the peer's queue stays short.
struct Connection::PullWait {
  static constexpr size_t kSegmentsAtOnce = 4;

  explicit PullWait(Connection& of) : connection(of), done(of.loop_) {}
  ~PullWait();
  // Waits until one more may be asked for.
  Task<Result<void>> slot() {
    while (segments >= kSegmentsAtOnce && !connection.error_) FF_CO_TRY(co_await progress());
    co_return {};
  }
  Task<Result<void>> progress() {
    done.reset();
    co_return co_await done.wait();
  }
  void segment_done() {
    segments--;
    done.set();
  }

  Connection& connection;
  size_t segments = 0;
  Event done;  // a segment is
};

// Errc::corrupt is the peer's doing. With another code it has gone, or this end is short of
// something.
inline FrameFault blame(const Error& error, FrameFault fault) {
  return error.code == Errc::corrupt ? fault : FrameFault::none;
}

struct PullRequest {
  uint64_t token = 0;
  uint64_t offset = 0;
  uint64_t ticket = 0;
  uint32_t length = 0;
};

// The messages of the bulk kinds (frame.h draws them).
using PushMessage = std::array<std::byte, 16>;
using PullMessage = std::array<std::byte, 28>;
using PulledMessage = std::array<std::byte, 8>;
using RegionMessage = std::array<std::byte, 16>;
PushMessage push_message(uint64_t token, uint64_t offset);
PullMessage pull_message(const PullRequest& request);
PulledMessage pulled_message(uint64_t ticket);
RegionMessage region_message(const Bulk::Region& region);

}  // namespace ff::net
