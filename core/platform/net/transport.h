// The transport seam: how a process comes to connections. `SystemTransport` (system_transport.h) is
// the machine's network, `SimNet` (sim/sim_net.h) makes simulated ones. rpc/ is written against
// this alone.
#pragma once

#include <memory>
#include <string>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/address.h"
#include "platform/net/connection.h"

namespace ff::net {

// A peer that has come. What is left to do before frames can flow (a TLS handshake, the set-up of
// queue pairs) waits for the peer, so it is not done by accept().
class Arrival {
 public:
  virtual ~Arrival() = default;
  // Its address, for messages.
  virtual std::string peer() const = 0;
  // The connection, owned by `loop`, which may be another one than the listener's. Once.
  virtual Task<Result<std::unique_ptr<Connection>>> open(Loop& loop) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // With the port that was chosen.
  virtual const Address& address() const = 0;
  virtual Task<Result<std::unique_ptr<Arrival>>> accept() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Errc::unreachable names the address and the cause.
  virtual Task<Result<std::unique_ptr<Connection>>> connect(Loop& loop, Address to) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& at) = 0;
};

}  // namespace ff::net
