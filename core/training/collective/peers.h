// The other hosts of a job. Local rank 0 of each host runs a thread that connects to them
// (rendezvous.h) and then exchanges data with them (pipeline.h), like NCCL's proxy thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "platform/base/stop_token.h"
#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "training/collective/host_group.h"
#include "training/collective/numa_placement.h"
#include "training/collective/pipeline.h"
#include "training/collective/world.h"

namespace ff::collective {

// How a host reaches the others; the same on all of its ranks.
struct Network {
  uint32_t ranks = 1;    // of the job
  net::Address at = {};  // where the host of rank 0 listens
  net::TransportOptions transport = {};
  std::optional<auth::Key> key = {};  // of the job; none: all nodes are on this machine
  PipelineOptions pipeline = {};      // the same on all hosts
  std::string zone = {};              // of this host: a name
};

class Peers {
 public:
  struct LocalHost {
    NumaPlacement placement = {};
    std::string sysfs = "/sys";
  };
  // Waits until all ranks of all hosts have joined; then the operation table says where the World
  // is. Errors: those of Rendezvous::join(); Errc::deadline names the missing ranks;
  // Errc::interrupted.
  static Result<std::unique_ptr<Peers>> connect(HostGroup& group, const Network& network,
                                                const LocalHost& local, const StopToken& stop,
                                                int64_t within_ns, const JoinCheck& check);
  // Sends what other hosts still need, then stops the thread.
  ~Peers();

 private:
  Peers(HostGroup& group, const Network& network, const LocalHost& local, Clock& clock);
  void run(int64_t until_ns);
  Task<void> serve(int64_t until_ns);
  Task<Result<void>> join(int64_t until_ns);
  std::optional<uint32_t> find_nic_node(const Mesh& mesh);
  void register_memory(const net::SharedRegion& region);
  Task<void> poll_loop();
  void set_outcome(Result<void> outcome);
  std::optional<Result<void>> outcome();

  HostGroup& group_;
  const Network network_;
  const LocalHost local_;
  SystemLoop loop_;
  std::unique_ptr<net::SystemTransport> transport_;
  std::optional<uint32_t> nic_node_;
  std::shared_ptr<const net::SharedRegion> world_table_;
  std::optional<Pipeline> pipeline_;
  std::optional<Event> stopping_;
  std::mutex mutex_;
  std::optional<Result<void>> outcome_;  // of the rendezvous; guarded by mutex_
  std::thread thread_;
};

}  // namespace ff::collective
