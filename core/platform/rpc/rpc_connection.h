// The common base of both ends of a connection after the handshake: receive loop, keep-alive and
// goaway. Clients use Channel (channel.h), servers ServerConnection (server_connection.h).
//
// Keep-alive: after kPingAfterNs without received bytes an end sends a ping; after kDeadAfterNs it
// closes the connection, since TCP alone detects a dead machine only after minutes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/task.h"
#include "platform/net/connection.h"
#include "platform/rpc/handshake.h"

namespace ff::rpc {

constexpr int64_t kPingAfterNs = 3 * kSecond;
constexpr int64_t kDeadAfterNs = 10 * kSecond;

constexpr uint8_t kFlagError = 4;  // reply: the message is a wire::Error

// Counts a connection that was closed because of a protocol violation by the peer.
void count_protocol_fault(const net::Connection& connection, Metrics& metrics);

class RpcConnection {
 public:
  RpcConnection(std::unique_ptr<net::Connection> connection, Peer peer, Metrics& metrics);
  virtual ~RpcConnection() = default;

  Loop& loop() const { return connection_->loop(); }
  net::Connection& connection() { return *connection_; }
  const net::Connection& connection() const { return *connection_; }
  const Peer& peer() const { return peer_; }

  // Steady time of the last received byte.
  int64_t last_receive_ns() const { return connection_->last_receive_ns(); }

 protected:
  // Starts receiving.
  void start();
  // Stops receiving. Call it before the members that the virtual functions use are destroyed.
  Task<void> finish();
  // Handles a frame other than ping and goaway. An error closes the connection.
  virtual Result<void> handle_frame(net::Frame frame) = 0;
  // The peer will send no new calls, or accept none.
  virtual void on_goaway() = 0;
  // The connection has failed; no more frames arrive.
  virtual void on_disconnect(const Error& error) = 0;

 private:
  Task<void> receive();
  Task<void> keep_alive();

  std::unique_ptr<net::Connection> connection_;
  const Peer peer_;
  Metrics& metrics_;
  Gate receive_gate_;
};

}  // namespace ff::rpc
