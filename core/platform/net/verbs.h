// Connections over RDMA: frames use SEND and RECV on a reliable queue pair, bulk transfers use RDMA
// WRITE and READ without the peer's CPU. The ends exchange their endpoints over TCP
// (verbs_setup.h); the TCP connection stays open and idle, and its end signals the peer's death.
//
//   auto device = VerbsDevice::open(loop, options);        one per loop
//   connect_socket() or accept()  ->  connect_verbs()      on both ends
//
// Connections fail if the device fails or its port goes down. Use RDMA on trusted fabrics only: it
// is not encrypted.
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
#include "platform/net/verbs_handles.h"
#include "platform/net/verbs_registration_cache.h"

namespace ff::net {

class VerbsQueuePair;

struct VerbsOptions {
  std::string device;         // "mlx5_0"; empty: the first device with an active port
  uint8_t port = 0;           // port number, from 1; 0: the first active port
  int gid_index = -1;         // in the port's GID table; -1: on Ethernet the RoCE v2 IPv4 GID
  uint8_t service_level = 0;  // InfiniBand: service level; RoCE: VLAN priority
  uint8_t traffic_class = 0;  // RoCE: DSCP in the upper six bits
  bool poll = false;          // busy polling: lower latency for a whole core
};

class VerbsDevice {
 public:
  // Errc::unsupported, with a hint: no such device, or no usable one.
  static Result<std::unique_ptr<VerbsDevice>> open(Loop& loop, VerbsOptions options);
  // Its connections must be destroyed before.
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  Loop& loop() const { return loop_; }
  const std::string& name() const { return name_; }
  const VerbsPort& port() const { return port_; }
  // The device has failed permanently and must be opened again.
  bool failed() const { return failed_; }
  // Registrations of exposed memory and local buffers. Declare memory pools cacheable there.
  VerbsRegistrationCache& registrations() { return *registrations_; }
  // Waits until all data of closed connections is acknowledged or timed out. Call it before the
  // process exits.
  Task<void> drain();

 private:
  friend class VerbsQueuePair;
  class LoopPoller;

  VerbsDevice(Loop& loop, VerbsOptions options);
  Result<void> use(VerbsPtr<ibv_context> context);
  Result<void> find_port();
  Result<void> find_gid();
  Result<void> start();
  Task<void> watch_completions();
  Task<void> watch_events();
  void handle_event(int type, VerbsQueuePair* queue, int port);
  void handle_fatal_event();
  void fail_all(const Error& error);
  // Errc::unreachable: the device has failed, or its port is down.
  Result<void> check_alive() const;
  // Keeps a closed queue until its last sends have arrived.
  void linger(std::shared_ptr<VerbsQueuePair> queue);

  Loop& loop_;
  VerbsOptions options_;
  std::string name_;
  VerbsPort port_;
  auth::SecureRng rng_;
  bool failed_ = false;

  VerbsPtr<ibv_context> context_;
  VerbsPtr<ibv_pd> domain_;
  VerbsPtr<ibv_comp_channel> channel_;
  std::unique_ptr<VerbsRegistrationCache> registrations_;
  std::unique_ptr<FdWatch> completions_;
  std::unique_ptr<FdWatch> events_;
  std::unique_ptr<LoopPoller> loop_poller_;
  std::set<VerbsQueuePair*> queues_;
  Gate lingering_;
  Gate gate_;
};

// Sets up an RDMA connection over another one to the peer, and verifies that bytes arrive in both
// directions. `name`: of the peer, for messages. Errc::unreachable, Errc::corrupt (invalid set-up
// message), Errc::newer_format, Errc::deadline.
Task<Result<std::unique_ptr<Connection>>> connect_verbs(VerbsDevice& device,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string name);

}  // namespace ff::net
