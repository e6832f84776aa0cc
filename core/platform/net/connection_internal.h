// Private types of Connection shared by connection.cc and connection_receive.cc.
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

// The outstanding segments of one pull. Only a few at a time: the link stays busy and the peer's
// send queue stays short.
struct Connection::PullWait {
  static constexpr size_t kSegmentsAtOnce = 4;

  explicit PullWait(Connection& of) : connection(of), done(of.loop_) {}
  ~PullWait();
  // Waits until another segment may be requested.
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
  Event done;  // a segment has arrived
};

// Only Errc::corrupt is the peer's fault. With other codes the peer is gone, or this end lacks a
// resource.
inline FrameFault blame(const Error& error, FrameFault fault) {
  return error.code == Errc::corrupt ? fault : FrameFault::none;
}

struct PullMessageFields {
  uint64_t token = 0;
  uint64_t offset = 0;
  uint64_t ticket = 0;
  uint32_t length = 0;
};

// Messages of the bulk frame kinds; frame.h defines their layout.
using PushMessage = std::array<std::byte, 16>;
using PullMessage = std::array<std::byte, 28>;
using PullReplyMessage = std::array<std::byte, 8>;
using RegionMessage = std::array<std::byte, 16>;
PushMessage push_message(uint64_t token, uint64_t offset);
PullMessage pull_message(const PullMessageFields& request);
PullReplyMessage pull_reply_message(uint64_t ticket);
RegionMessage region_message(const Bulk::RegionUpdate& region);

}  // namespace ff::net
