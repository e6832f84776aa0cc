// The processes of the scenario of chain/: storage nodes that can be killed, paused, lose power and
// restart, and the programs that use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_history.h"
#include "lab/scenario/chain_load.h"
#include "lab/scenario/cluster_parts.h"
#include "platform/base/gate.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_disk.h"
#include "storage/chain/storage_node.h"
#include "storage/chunk/chunk_store.h"

namespace ff::scenario::chain_parts {

using cluster_parts::ClusterSimulation;
using cluster_parts::ManagerProcess;

constexpr int kStorageNodes = 3;
constexpr int kPrograms = 2;
// This program and this node share a machine: the node accesses memory of the program.
constexpr const char* kSharing = "program0";
constexpr const char* kShared = "node1";

class StorageProcess {
 public:
  // With several disks, each start runs one loop (shard) for all, or one for each.
  StorageProcess(ClusterSimulation& simulation, cluster::NodeId id, uint64_t seed, size_t disks);
  ~StorageProcess();
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void power_loss();
  // The process dies, and its disks lose what is not flushed; the machine goes on.
  void device_loss();
  // How often its disks have lost what was not flushed.
  uint64_t disk_losses() const { return disk_losses_; }
  // Of several shards, a pause may hit one alone.
  void pause(bool paused);
  bool paused() const { return paused_; }
  // All disks of the node fail together.
  sim::SimDisk& disk() { return disk_; }
  // Removes or truncates block files on the disks of a stopped process, but only if its targets are
  // offline in `routing` and `routing` is newer than any that it knew, so that other targets have
  // its data.
  void lose_files(const cluster::Routing& routing);
  // Starts to verify all chunks; scrubbed() then returns the number of damaged ones.
  void begin_scrub();
  std::optional<uint64_t> scrubbed() const { return scrubbed_; }

  // Whether all disks are open.
  bool disks_open() const;
  // Null: its disk is not open yet, or there is no such target.
  chunk::ChunkStore* store(cluster::TargetId target) const;
  chain::Replica* replica(cluster::TargetId target) const;

 private:
  struct Live;
  Task<void> work(Live& live);
  Task<void> scrub(Live& live);
  std::vector<std::shared_ptr<chunk::ChunkStore>> open_stores() const;
  void lose_files_in(const std::string& dir);
  bool counted_on(const cluster::Routing& routing) const;
  void note_routing();
  void stop();
  void crash_disks();

  ClusterSimulation& simulation_;
  const cluster::NodeId id_;
  const std::string name_;
  const std::vector<std::string> dirs_;  // of the disks
  sim::SimDisk disk_;
  sim::SimDisk memory_;  // files that live as long as the machine runs
  std::string boot_ = "boot";
  bool machine_off_ = false;
  bool paused_ = false;
  uint64_t disk_losses_ = 0;
  uint64_t routing_version_ = 0;  // newest version that a process of this node knew
  std::optional<uint64_t> scrubbed_;
  std::unique_ptr<Live> live_;
};

std::string program_name(int number);

// A client process of the cluster that can be paused.
class Program {
 public:
  Program(ClusterSimulation& simulation, std::string name);
  virtual ~Program() = default;
  const std::string& name() const { return name_; }
  void pause(bool paused) { loop_.set_paused(paused); }

 protected:
  rpc::ClientContext& context() { return context_; }

 private:
  const std::string name_;
  sim::SimLoop loop_;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
};

// Program `number` of a scenario: it puts `Load` on the cluster. Further arguments are Load's,
// after the addresses of the managers.
template <class Load>
class LoadProgram final : public Program {
 public:
  template <class... Args>
  LoadProgram(ClusterSimulation& simulation, int number, Args&&... args)
      : Program(simulation, program_name(number)),
        load_(context(), cluster_parts::manager_addresses(), std::forward<Args>(args)...) {}
  Load& load() { return load_; }

 private:
  Load load_;
};

}  // namespace ff::scenario::chain_parts
