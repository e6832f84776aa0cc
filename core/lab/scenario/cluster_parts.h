// The processes of the scenario of cluster/: managers and nodes that can be killed, paused and
// restarted, with the state that survives a restart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/scenario/simulation.h"
#include "platform/base/gate.h"
#include "platform/kv/memory_engine.h"
#include "platform/rpc/server.h"
#include "storage/cluster/heartbeat_sender.h"
#include "storage/cluster/manager_service.h"
#include "storage/cluster/member.h"

namespace ff::scenario::cluster_parts {

constexpr int kManagers = 3;
constexpr int kNodes = 4;
constexpr uint16_t kPort = 7000;

struct ClusterSimulation : Simulation {
  using Simulation::Simulation;
  // Uniform in [0, ns).
  int64_t some_ns(int64_t ns) { return static_cast<int64_t>(rng.below(static_cast<uint64_t>(ns))); }

  kv::MemoryStore store;
};

// A random drift of up to 10 %.
sim::ClockSkew skew(Rng& rng);
std::vector<net::Address> manager_addresses();
// Describes all targets that do not serve, for messages.
std::string not_serving(const cluster::Routing& routing);

// The store as one manager accesses it. During a partition it gets no answers, and its commits
// arrive late.
class PartitionedEngine final : public kv::Engine {
 public:
  PartitionedEngine(ClusterSimulation& simulation, Loop& loop, const bool& cut);
  Task<Result<void>> run(kv::TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> run_async_commit(kv::TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  kv::CommitPosition last_commit() const override { return engine_.last_commit(); }
  std::optional<uint64_t> durable_position(uint64_t generation) const override {
    return engine_.durable_position(generation);
  }
  Task<Result<void>> view(kv::TxnFunction function, int64_t deadline_ns) override;

 private:
  kv::TxnFunction delayed(kv::TxnFunction function);
  Task<Result<void>> pass(int64_t deadline_ns);

  Loop& loop_;
  const bool& cut_;
  kv::MemoryEngine engine_;
};

class ManagerProcess {
 public:
  // `files`: also runs the metadata service.
  ManagerProcess(ClusterSimulation& simulation, int number, bool files = false);
  ~ManagerProcess();
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void pause(bool paused);
  bool paused() const { return paused_; }
  void partition_store(bool cut) { cut_ = cut; }
  // 0: not primary.
  uint64_t epoch() const;
  std::optional<Error> halted() const;

 private:
  struct Live;
  ClusterSimulation& simulation_;
  const std::string name_;
  const bool files_;
  bool cut_ = false;
  bool paused_ = false;
  std::unique_ptr<Live> live_;
};

class NodeProcess {
 public:
  NodeProcess(ClusterSimulation& simulation, cluster::NodeId id);
  ~NodeProcess();
  const std::string& name() const { return name_; }
  cluster::NodeId id() const { return id_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void pause(bool paused);
  bool paused() const { return paused_; }
  // Fails or repairs all of its targets.
  void fail_disk(bool failed) { disk_failed_ = failed; }
  bool disk_failed() const { return disk_failed_; }

  // Only while the process runs.
  const cluster::Member& member() const;
  int64_t now_ns() const;
  // Called when a copy to one of its targets ends; returns whether the copy is complete.
  using Copy = std::function<bool(NodeProcess&, cluster::TargetId, uint64_t chain_version)>;
  void set_copy(Copy copy) { copy_ = std::move(copy); }

 private:
  struct Live;
  Task<void> work(Live& live);
  void update_target(Live& live, const cluster::Chain& chain, const cluster::Target& target);

  ClusterSimulation& simulation_;
  const cluster::NodeId id_;
  const std::string name_;
  Copy copy_;
  bool paused_ = false;
  bool disk_failed_ = false;
  // Persistent state on its disks.
  uint64_t generation_ = 0;
  cluster::Routing kept_;
  std::set<cluster::TargetId> created_targets_;
  std::unique_ptr<Live> live_;
};

}  // namespace ff::scenario::cluster_parts
