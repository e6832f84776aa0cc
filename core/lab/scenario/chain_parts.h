// The processes of the story of chain/: storage nodes that can be killed, paused, cut off from
// power and started again, and the programs that use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lab/scenario/chain_history.h"
#include "lab/scenario/chain_load.h"
#include "lab/scenario/cluster_parts.h"
#include "platform/base/gate.h"
#include "platform/rpc/server.h"
#include "platform/sim/sim_disk.h"
#include "storage/chain/storage_node.h"
#include "storage/chunk/store.h"

namespace ff::scenario::chain_parts {

using cluster_parts::ClusterStage;
using cluster_parts::ManagerProcess;

constexpr int kStorageNodes = 3;
constexpr int kPrograms = 2;
// On one machine: the node reaches memory of the program.
constexpr const char* kSharing = "program0";
constexpr const char* kShared = "node1";

class StorageProcess {
 public:
  StorageProcess(ClusterStage& stage, cluster::NodeId id, uint64_t seed);
  ~StorageProcess();
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void lose_power();
  void pause(bool paused);
  bool paused() const { return paused_; }
  sim::SimDisk& disk() { return disk_; }
  // Of a process that has ended: block files of its disk are gone, or end too early. Its targets
  // are offline in `routing`, which is newer than all that it knew: others have what they had.
  void lose_files(const cluster::Routing& routing);
  // Reads all chunks; after that, how many of them are damaged.
  void begin_scrub();
  std::optional<uint64_t> scrubbed() const { return scrubbed_; }

  // Of the running process. Null: not open yet; it has no such target.
  chunk::Store* store() const;
  chain::Replica* replica(cluster::TargetId target) const;

 private:
  struct Live;
  Task<void> work(Live& live);
  Task<void> scrub(Live& live);
  bool counted_on(const cluster::Routing& routing) const;
  void note_routing();
  void stop();

  ClusterStage& stage_;
  const cluster::NodeId id_;
  const std::string name_;
  sim::SimDisk disk_;
  std::string boot_ = "boot";
  bool machine_off_ = false;
  bool paused_ = false;
  uint64_t routing_version_ = 0;  // the newest that a process of it knew
  std::optional<uint64_t> scrubbed_;
  std::unique_ptr<Live> live_;
};

// A process that uses the cluster and can be halted.
class Program {
 public:
  Program(ClusterStage& stage, std::string name);
  virtual ~Program() = default;
  const std::string& name() const { return name_; }
  void pause(bool paused) { loop_.set_paused(paused); }

 protected:
  rpc::ClientContext& context() { return context_; }

 private:
  const std::string name_;
  sim::SimLoop loop_;
  rpc::Senders senders_;
  std::unique_ptr<net::Transport> transport_;
  rpc::ClientContext context_;
};

class ChainProgram final : public Program {
 public:
  ChainProgram(ClusterStage& stage, int number, History& history);
  ChainLoad& load() { return load_; }

 private:
  const ByteSpan arena_;
  ChainLoad load_;
};

}  // namespace ff::scenario::chain_parts
