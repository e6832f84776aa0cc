// The machine's network. Each connection takes the fastest way that both ends have: shared memory
// on one host, RDMA where there are devices on one fabric, else TCP, with TLS if it is wanted.
//
// A client connects over TCP first, and the ends settle the way there (preface.h). A way that both
// have but that does not carry bytes (devices on fabrics that do not meet, a proxy between what
// seems to be one host) is left out for a while, for that address.
//
// One a process, for all of its loops, which outlive it; it is destroyed when none of them runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/key.h"
#include "platform/auth/token.h"
#include "platform/net/preface.h"
#include "platform/net/region.h"
#include "platform/net/tls.h"
#include "platform/net/transport.h"
#include "platform/net/verbs.h"

namespace ff::net {

// --net
enum class NetUse : uint8_t {
  automatic,
  tcp,    // nothing else, on one host as well
  verbs,  // RDMA or nothing
};

struct TransportOptions {
  NetUse use = NetUse::automatic;
  VerbsOptions verbs = {};
  // TCP as TLS alone; then there is no RDMA, which is not encrypted.
  std::shared_ptr<const TlsContext> tls = nullptr;
  // The cluster's. The set-up of RDMA proves it; for all else the handshake does (rpc/handshake.h).
  std::optional<auth::Key> key = {};
  // A user's, in place of the key, which the handshake proves. Then there is no RDMA: whoever has a
  // queue pair may try the keys of all memory that a device has registered (verbs_setup.h).
  std::optional<auth::Token> token = {};
};

class SystemTransport final : public Transport {
 public:
  explicit SystemTransport(TransportOptions options);
  ~SystemTransport() override;

  // Errc::refused: a certificate or key that one end does not accept, or no way in common.
  // Errc::unsupported: --net verbs without a device. "unix:" addresses are shared memory.
  Task<Result<std::unique_ptr<Connection>>> connect(Loop& loop, Address to) override;
  // Errc::unsupported: --net verbs without a device.
  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& at) override;

  // Zeros, in whole pages, which peers on this host reach in place and devices register once. They
  // stay until the transport is destroyed. Any thread.
  Result<ByteSpan> memory(uint64_t size);
  // Memory of somebody else's, mapped from `fd`, in whole: peers of the loop's connections reach it
  // as well, until it is given back, which the same loop does. Then nobody uses it any more.
  std::shared_ptr<const Region> adopt(Loop& loop, ByteSpan memory, Fd fd);
  void give_back(Loop& loop, const Region& region);
  // The RDMA device that the loop's connections use, "mlx5_0"; empty while there is none.
  std::string rdma_device(Loop& loop);
  // Until what the loop's closed connections had sent over RDMA has arrived, or they gave up.
  Task<void> settled(Loop& loop);

 private:
  class SystemArrival;
  class SystemListener;
  // An open device, and what it was told of memory() and adopt(), by the region's number.
  struct Device {
    std::unique_ptr<VerbsDevice> verbs;
    std::map<uint32_t, VerbsMemory::Lasting> lasting;
  };
  // The devices of one loop, touched by it alone.
  struct OfLoop {
    std::vector<Device> devices;  // the last is in use; lost ones wait for their connections
    std::map<uint32_t, std::shared_ptr<const Region>> adopted;
    std::optional<Error> error;  // why there is none, as of
    int64_t looked_ns = 0;
  };
  // A way that did not work.
  struct Failed {
    Ways ways = 0;
    int64_t until_ns = 0;
  };

  OfLoop& of(Loop& loop);
  Result<VerbsDevice*> device(Loop& loop);
  // What this end can, between these addresses.
  Result<Ways> ways(Loop& loop, const Address& local, const Address& peer);
  Ways failed_ways(Loop& loop, const Address& to);
  void leave_out(Loop& loop, const Address& to, Way way, const Error& error);
  Result<std::unique_ptr<Connection>> shared(Loop& loop, Socket socket);
  Task<Result<std::unique_ptr<Connection>>> attempt(Loop& loop, Address to, Way& way);
  Task<Result<std::unique_ptr<Connection>>> accept(Loop& loop, Socket socket);
  Task<Result<std::unique_ptr<Stream>>> secured(std::unique_ptr<SocketStream> socket,
                                                std::string host);

  const TransportOptions options_;
  RegionSet regions_;
  std::mutex mutex_;  // of the three below
  std::vector<std::shared_ptr<const Region>> memory_;
  std::map<Loop*, OfLoop> of_loops_;
  std::map<std::string, Failed> failed_;  // by address
  auth::SecureRng rng_;
};

}  // namespace ff::net
