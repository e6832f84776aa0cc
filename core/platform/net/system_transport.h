// The machine's network. Each connection uses the fastest transport that both ends support: shared
// memory on one host, RDMA if both have a device, else TCP.
//
// A client connects over TCP first. There both ends prove their keys (secure_stream.h) and
// negotiate the transport (preface.h): frames on TCP stay inside TLS; shared memory and RDMA, which
// are not encrypted, are set up inside it, so that only the proven peer gets them. A transport that
// both support but that does not work (RDMA fabrics without a route, a proxy in front of an
// apparently local address) is excluded for that address for a minute.
//
// One per process, shared by all of its loops. The loops outlive it; no loop may run while it is
// destroyed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/keyring.h"
#include "platform/net/preface.h"
#include "platform/net/secure_stream.h"
#include "platform/net/shared_region.h"
#include "platform/net/tls.h"
#include "platform/net/transport.h"
#include "platform/net/verbs.h"

namespace ff::net {

// --net
enum class NetMode : uint8_t {
  automatic,
  tcp,    // TCP only, on one host too
  verbs,  // RDMA only
};

struct TransportOptions {
  NetMode mode = NetMode::automatic;
  VerbsOptions verbs = {};
  // The keys of this process; null: it has none and trusts every process of this machine. Users get
  // no RDMA (verbs_setup.h).
  std::shared_ptr<auth::Keyring> keyring = nullptr;
  // TCP connections are encrypted only until both ends have proven their keys, if the peer agrees
  // (net.security = "trusted-network").
  bool trusted_network = false;
  // Besides the keys: certificates of both ends.
  std::shared_ptr<const TlsContext> certificates = nullptr;
};

class SystemTransport final : public Transport {
 public:
  explicit SystemTransport(TransportOptions options);
  ~SystemTransport() override;

  // Errc::refused: one end does not accept the other's certificate or key, or the ends have no
  // transport in common. Errc::unsupported: --net verbs without a device. "unix:" addresses use
  // shared memory.
  Task<Result<std::unique_ptr<Connection>>> connect(Loop& loop, Address to,
                                                    auth::Service service) override;
  // Errc::unsupported: --net verbs without a device.
  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& at) override;
  auth::Keyring* keyring() const override { return options_.keyring.get(); }

  // Zeroed whole pages that peers on this host access in place and that RDMA devices register once.
  // Freed with the transport. Thread-safe.
  Result<ByteSpan> allocate_shared_memory(uint64_t size);
  // The file that holds this memory, for a process that continues this one: it maps the file and
  // continues the memory, before it shares other memory.
  Result<Fd> memory_fd(ByteView memory) const;
  // Takes memory that a predecessor has allocated so, mapped completely from `fd`; it stays mapped
  // until the transport is destroyed. Thread-safe.
  void continue_shared_memory(ByteSpan memory, Fd fd);
  // Shares memory that the caller owns and has mapped completely from `fd` with the peers of the
  // loop's connections, until the same loop calls release_memory(). It must not be in use then.
  std::shared_ptr<const SharedRegion> adopt_memory(Loop& loop, ByteSpan memory, Fd fd);
  void release_memory(Loop& loop, const SharedRegion& region);
  // The RDMA device of the loop's connections, such as "mlx5_0"; empty: none.
  std::string rdma_device(Loop& loop);
  // Waits until all data that closed connections of the loop sent over RDMA is acknowledged, or
  // timed out.
  Task<void> drain(Loop& loop);

 private:
  class SystemIncomingConnection;
  class SystemListener;
  // An open device, and the regions that it may cache registrations for, by region id.
  struct Device {
    std::unique_ptr<VerbsDevice> verbs;
    std::map<uint32_t, VerbsRegistrationCache::CacheableRange> cacheable;
  };
  // The devices of one loop, accessed by that loop only.
  struct LoopState {
    std::vector<Device> devices;  // the last is in use; failed ones wait for their connections
    std::map<uint32_t, std::shared_ptr<const SharedRegion>> adopted;
    std::optional<Error> error;  // why there is no device, as of checked_ns
    int64_t checked_ns = 0;
  };
  // Who must be at the other end of a Unix socket.
  struct UnixPeer {
    bool is_server = false;
    uint32_t uid = 0;
    std::optional<auth::Key> secret;             // of the TLS connection
    std::string name;                            // for messages
    std::shared_ptr<const void> user = nullptr;  // ShmBulk
  };
  // Transports that did not work for one address.
  struct FailedTransports {
    TransportKinds kinds = 0;
    int64_t until_ns = 0;
  };

  LoopState& state_of(Loop& loop);
  Result<VerbsDevice*> device(Loop& loop);
  // The transports that this end supports between these addresses, for this client.
  Result<TransportKinds> available_transports(Loop& loop, const Address& local, const Address& peer,
                                              const auth::Entity* client);
  // One more connection of this user with shared memory; null: it has enough.
  std::shared_ptr<const void> count_shm(const auth::Entity& user);
  TransportKinds failed_transports(Loop& loop, const Address& to);
  void exclude(Loop& loop, const Address& to, TransportKind kind, const Error& error);
  // The connection on the Unix socket, after both ends have proven who they are.
  Task<Result<std::unique_ptr<Connection>>> open_shm(Loop& loop, Socket socket, UnixPeer peer);
  Task<Result<std::unique_ptr<Connection>>> accept_shm(Loop& loop, SocketListener& listener,
                                                       UnixPeer peer);
  Task<Result<std::unique_ptr<Connection>>> attempt(Loop& loop, Address to, auth::Service service,
                                                    TransportKind& kind);
  Task<Result<std::unique_ptr<Connection>>> accept(Loop& loop, Socket socket);

  const TransportOptions options_;
  const StreamCredentials credentials_;
  SharedRegionSet regions_;
  std::mutex mutex_;                                           // guards the next four
  std::map<std::string, std::weak_ptr<int>> shm_connections_;  // of users: the use count
  std::vector<std::shared_ptr<const SharedRegion>> memory_;
  std::map<Loop*, LoopState> loop_states_;
  std::map<std::string, FailedTransports> failed_;  // by address
  auth::SecureRng rng_;
};

}  // namespace ff::net
