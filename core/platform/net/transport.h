// The transport seam: how a process makes connections. `SystemTransport` (system_transport.h) uses
// the machine's network, `SimNet` (sim/sim_net.h) a simulated one. rpc/ depends on this interface
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "platform/auth/keyring.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/address.h"
#include "platform/net/connection.h"

namespace ff::net {

// An accepted connection before its set-up. The rest of the set-up (TLS handshake, queue pairs)
// waits for the peer, so accept() does not do it.
class IncomingConnection {
 public:
  virtual ~IncomingConnection() = default;
  // Its address, for messages.
  virtual std::string peer() const = 0;
  // Who is behind it before it has proven anything, for limits: "uid 1000" of this machine, or the
  // host; empty: a source that needs no limit of its own.
  virtual std::string source() const = 0;
  // The shard of this daemon that the peer asks for (Address::shard), read in `loop`; nothing: any.
  // May be called again.
  virtual Task<Result<std::optional<uint32_t>>> read_shard(Loop& loop) = 0;
  // Completes the set-up. `loop` owns the connection and may differ from the listener's loop. Call
  // it once.
  virtual Task<Result<std::unique_ptr<Connection>>> open(Loop& loop) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // With the port that the kernel chose.
  virtual const Address& address() const = 0;
  virtual Task<Result<std::unique_ptr<IncomingConnection>>> accept() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // `service`: what the peer must prove to be. Errc::unreachable: the message names the address and
  // the cause. Errc::refused: an end does not accept the other's key.
  virtual Task<Result<std::unique_ptr<Connection>>> connect(Loop& loop, Address to,
                                                            auth::Service service) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& at) = 0;
  // The keys of this process; null: it has none, and its connections prove nothing.
  virtual auth::Keyring* keyring() const = 0;
};

}  // namespace ff::net
