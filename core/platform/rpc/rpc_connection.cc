// rpc_connection.cc: the receive loop and the keep-alive.
#include "platform/rpc/rpc_connection.h"

#include <fmt/format.h>

#include "platform/base/wait.h"

namespace ff::rpc {

void count_protocol_fault(const net::Connection& connection, Metrics& metrics) {
  if (connection.fault() == net::FrameFault::none) return;
  metrics
      .counter("ff_rpc_broken_total", "Connections closed for what the peer sent",
               {{"cause", std::string(net::fault_name(connection.fault()))}})
      .add();
}

RpcConnection::RpcConnection(std::unique_ptr<net::Connection> connection, Peer peer,
                             Metrics& metrics)
    : connection_(std::move(connection)),
      peer_(std::move(peer)),
      metrics_(metrics),
      receive_gate_(connection_->loop()) {}

void RpcConnection::start() {
  receive_gate_.spawn(receive());
  receive_gate_.spawn(keep_alive());
}

Task<void> RpcConnection::finish() {
  co_await receive_gate_.close(fail(Errc::interrupted, "the connection is no longer needed"));
}

Task<void> RpcConnection::receive() {
  for (;;) {
    auto frame = co_await connection_->receive();
    if (!frame) {
      if (!connection_->failed()) co_return;  // finish()
      count_protocol_fault(*connection_, metrics_);
      on_disconnect(frame.error());
      co_return;
    }
    Result<void> handled;
    switch (frame->head.kind) {
      case net::FrameKind::ping:
        if ((frame->head.flags & net::kFlagAnswer) == 0) {
          connection_->send({.kind = net::FrameKind::ping, .flags = net::kFlagAnswer});
        }
        break;
      case net::FrameKind::goaway: on_goaway(); break;
      default: handled = handle_frame(std::move(*frame)); break;
    }
    if (!handled) {
      connection_->close(std::move(std::move(handled).error()).with_context(peer_.text() + ": "),
                         net::FrameFault::protocol);
    }
  }
}

Task<void> RpcConnection::keep_alive() {
  for (;;) {
    if (!co_await sleep_for(loop(), kPingAfterNs) || connection_->failed()) co_return;
    const int64_t silent_ns = loop().now_ns() - last_receive_ns();
    if (silent_ns >= kDeadAfterNs) {
      connection_->close(fail(Errc::unreachable, "{}: no sign of life for {} s", peer_.text(),
                              silent_ns / kSecond));
      co_return;
    }
    if (silent_ns >= kPingAfterNs) connection_->send({.kind = net::FrameKind::ping});
  }
}

}  // namespace ff::rpc
