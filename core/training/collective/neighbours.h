// The other nodes of a job, on the rank of a host that speaks with them (its rank 0): a thread that
// meets them (mesh.h) and then moves pieces between them (flow.h).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "platform/base/stop.h"
#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "training/collective/flow.h"
#include "training/collective/host_group.h"
#include "training/collective/placement.h"
#include "training/collective/world.h"

namespace ff::collective {

// How a host finds the others, the same on all of its ranks.
struct Network {
  uint32_t ranks = 1;                    // of the job
  net::Address at = {};                  // where the host of rank 0 listens
  net::TransportOptions transport = {};  // its key is the job's
  FlowOptions flow = {};                 // the same on all hosts
  uint32_t zone = 0;                     // of this host
};

class Neighbours {
 public:
  // What this machine is like.
  struct Here {
    Placement placement = {};
    std::string sysfs = "/sys";
  };
  // Waits until all ranks of all hosts have come. Then the table of them is on the board. Errors:
  // those of Mesh::join(); Errc::deadline names the ranks that have not come; Errc::interrupted.
  static Result<std::unique_ptr<Neighbours>> meet(HostGroup& group, const Network& network,
                                                  const Here& here, const Stop& stop,
                                                  int64_t within_ns);
  // Sends what others still need first.
  ~Neighbours();

 private:
  Neighbours(HostGroup& group, const Network& network, const Here& here, Clock& clock);
  void run(int64_t until_ns);
  Task<void> live(int64_t until_ns);
  Task<Result<void>> join(int64_t until_ns);
  std::optional<uint32_t> nic_node(const Mesh& mesh);
  void share(const net::Region& region);
  Task<void> watch();
  void set_outcome(Result<void> outcome);
  std::optional<Result<void>> outcome();

  HostGroup& group_;
  const Network network_;
  const Here here_;
  SystemLoop loop_;
  std::unique_ptr<net::SystemTransport> transport_;
  std::string missing_;  // ranks, while they meet
  std::optional<uint32_t> nic_node_;
  std::shared_ptr<const net::Region> table_;
  std::optional<Flow> flow_;
  std::optional<Event> ends_;
  std::mutex mutex_;
  std::optional<Result<void>> outcome_;  // of the meeting; guarded by it
  std::thread thread_;
};

}  // namespace ff::collective
