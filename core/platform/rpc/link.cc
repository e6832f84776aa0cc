// link.cc: the receive loop and the keep-alive of a link.
#include "platform/rpc/link.h"

#include <fmt/format.h>

#include "platform/base/wait.h"

namespace ff::rpc {

void count_broken(const net::Connection& connection, Metrics& metrics) {
  if (connection.fault() == net::FrameFault::none) return;
  metrics
      .counter("ff_rpc_broken_total", "Connections closed for what the peer sent",
               {{"cause", std::string(net::fault_name(connection.fault()))}})
      .add();
}

Link::Link(std::unique_ptr<net::Connection> connection, Peer peer, Metrics& metrics)
    : connection_(std::move(connection)),
      peer_(std::move(peer)),
      metrics_(metrics),
      link_gate_(connection_->loop()) {}

void Link::start() {
  link_gate_.spawn(receive());
  link_gate_.spawn(keep_alive());
}

Task<void> Link::finish() {
  co_await link_gate_.close(fail(Errc::interrupted, "the connection is no longer needed"));
}

Task<void> Link::receive() {
  for (;;) {
    auto frame = co_await connection_->receive();
    if (!frame) {
      if (!connection_->failed()) co_return;  // finish()
      count_broken(*connection_, metrics_);
      lost(frame.error());
      co_return;
    }
    Result<void> taken;
    switch (frame->head.kind) {
      case net::FrameKind::ping:
        if ((frame->head.flags & net::kFlagAnswer) == 0) {
          connection_->send({.kind = net::FrameKind::ping, .flags = net::kFlagAnswer});
        }
        break;
      case net::FrameKind::bye: said_bye(); break;
      default: taken = take(std::move(*frame)); break;
    }
    if (!taken) {
      connection_->close(std::move(std::move(taken).error()).within(peer_.text() + ": "),
                         net::FrameFault::protocol);
    }
  }
}

Task<void> Link::keep_alive() {
  for (;;) {
    if (!co_await after(loop(), kPingAfterNs) || connection_->failed()) co_return;
    const int64_t silent_ns = loop().now_ns() - heard_ns();
    if (silent_ns >= kDeadAfterNs) {
      connection_->close(fail(Errc::unreachable, "{}: no sign of life for {} s", peer_.text(),
                              silent_ns / kSecond));
      co_return;
    }
    if (silent_ns >= kPingAfterNs) connection_->send({.kind = net::FrameKind::ping});
  }
}

}  // namespace ff::rpc
