// What both ends of a connection do alike once the handshake is done: receive, keep alive, say
// goodbye. A channel (channel.h) is the link of a client, a session (session.h) that of a server.
//
// Keep-alive: an end that has heard nothing for kPingAfterNs asks; one that has heard nothing for
// kDeadAfterNs gives the connection up, for TCP alone notices a dead machine after minutes.
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

// Counts a connection that was closed for what the peer sent, if it was; whichever end this is.
void count_broken(const net::Connection& connection, Metrics& metrics);

class Link {
 public:
  Link(std::unique_ptr<net::Connection> connection, Peer peer, Metrics& metrics);
  virtual ~Link() = default;

  Loop& loop() const { return connection_->loop(); }
  net::Connection& connection() { return *connection_; }
  const net::Connection& connection() const { return *connection_; }
  const Peer& peer() const { return peer_; }

  // When the peer was last heard of, steady.
  int64_t heard_ns() const { return connection_->heard_ns(); }

 protected:
  // Begins to receive.
  void start();
  // Ends what start() began. Before anything that the virtual functions use is gone.
  Task<void> finish();
  // A frame that is not the link's own. An error closes the connection.
  virtual Result<void> take(net::Frame frame) = 0;
  // The peer will send no new calls, or take none.
  virtual void said_bye() = 0;
  // The connection has failed: nothing arrives any more.
  virtual void lost(const Error& error) = 0;

 private:
  Task<void> receive();
  Task<void> keep_alive();

  std::unique_ptr<net::Connection> connection_;
  const Peer peer_;
  Metrics& metrics_;
  Gate link_gate_;
};

}  // namespace ff::rpc
