// Connections over RDMA: frames are SENDs and RECVs on a reliable queue pair, bulk is RDMA WRITE
// and READ, so that the peer's processor has no part in it. Two ends meet over TCP (verbs_setup.h);
// the TCP connection stays open and says nothing more: when it ends, so does the peer.
//
//   auto device = VerbsDevice::open(loop, options);        one a process and loop
//   connect_socket() or accept()  ->  connect_verbs()      both ends alike
//
// Connections of a device that is lost, or whose port goes down, fail. RDMA is for trusted fabrics:
// what travels is not encrypted.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "platform/auth/key.h"
#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/connection.h"
#include "platform/net/socket.h"
#include "platform/net/verbs_memory.h"
#include "platform/net/verbs_parts.h"

namespace ff::net {

class VerbsQueue;

struct VerbsOptions {
  std::string device;         // "mlx5_0"; empty: the first with an active port
  uint8_t port = 0;           // of the device, from 1; 0: the first that is active
  int gid_index = -1;         // in the port's table; -1: on Ethernet the IPv4 one of RoCE v2
  uint8_t service_level = 0;  // InfiniBand: fabrics map it to a virtual lane; RoCE: VLAN priority
  uint8_t traffic_class = 0;  // RoCE: the DSCP in the upper six bits
  bool poll = false;          // the loop polls and never sleeps: latency for a whole core
};

class VerbsDevice {
 public:
  // Errc::unsupported, with a hint, where there is no such device or none can be used.
  static Result<std::unique_ptr<VerbsDevice>> open(Loop& loop, VerbsOptions options);
  // Its connections have gone before.
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  Loop& loop() const { return loop_; }
  const std::string& name() const { return name_; }
  const VerbsPort& port() const { return port_; }
  // For good: it must be opened again.
  bool lost() const { return lost_; }
  // Exposed memory and local buffers are registered here; pools are best told as lasting.
  VerbsMemory& memory() { return *memory_; }
  // Until what closed connections had sent has arrived, or they gave up: before a process ends.
  Task<void> settled();

 private:
  friend class VerbsQueue;
  class Asked;

  VerbsDevice(Loop& loop, VerbsOptions options);
  Result<void> use(VerbsPtr<ibv_context> context);
  Result<void> find_port();
  Result<void> find_gid();
  Result<void> start();
  Task<void> watch_completions();
  Task<void> watch_events();
  void take_event(int type, VerbsQueue* queue, int port);
  void take_loss();
  void lose_all(const Error& error);
  // Errc::unreachable: not any more, or not now.
  Result<void> check_alive() const;
  // Keeps a closed queue until its last sends have arrived.
  void linger(std::shared_ptr<VerbsQueue> queue);

  Loop& loop_;
  VerbsOptions options_;
  std::string name_;
  VerbsPort port_;
  auth::SecureRng rng_;
  bool lost_ = false;

  VerbsPtr<ibv_context> context_;
  VerbsPtr<ibv_pd> domain_;
  VerbsPtr<ibv_comp_channel> channel_;
  std::unique_ptr<VerbsMemory> memory_;
  std::unique_ptr<FdWatch> completions_;
  std::unique_ptr<FdWatch> events_;
  std::unique_ptr<Asked> asked_;
  std::set<VerbsQueue*> queues_;
  Gate lingering_;
  Gate gate_;
};

struct VerbsSide {
  bool is_client = false;
  std::optional<auth::Key> key = {};  // of the cluster: both ends prove to hold it, or have none
};

// Makes a connection of a TCP connection. When it is there, bytes have gone both ways over RDMA.
// Errc::unreachable, Errc::refused (another key), Errc::corrupt (the peer said something else than
// a set-up), Errc::newer_format, Errc::deadline.
Task<Result<std::unique_ptr<Connection>>> connect_verbs(VerbsDevice& device,
                                                        std::unique_ptr<SocketStream> socket,
                                                        VerbsSide side);

}  // namespace ff::net
