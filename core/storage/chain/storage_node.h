// A storage node: its disks with their targets, its place in the cluster, and what it serves
// (storage.md, "Objects"). `ff serve-storage` runs one on a machine, the story of chain/ several in
// simulation.
//
// What it is stands on its disks: the cluster and the node in each one's identity, the generation
// of its last process and the newest routing in each one's note. A disk that fails takes its
// targets down and nothing else. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/wait.h"
#include "platform/io/disk.h"
#include "platform/rpc/client.h"
#include "storage/chain/nodes.h"
#include "storage/chain/pace.h"
#include "storage/chain/replicas.h"
#include "storage/chunk/store.h"
#include "storage/cluster/heartbeats.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/member.h"

namespace ff::chain {

struct StorageOptions {
  std::vector<std::string> dirs = {};  // one for each disk
  cluster::NodeId node = 0;            // of a new node; 0: drawn. Of a known one: checked
  std::string name = {};               // for people
  std::string domain = {};             // routing.h
  std::string boot = {};               // of the machine, as chunk::StoreOptions
  bool format = false;                 // folders without a disk become disks of a known node, too
  bool direct = true;                  // chunk::StoreOptions
  uint64_t paged_max = chunk::kPagedMax;
  chunk::CommitOn commit_on = chunk::CommitOn::thread;
  uint64_t copy_rate = 0;   // bytes a second copied to targets that come back; 0: no limit
  uint64_t scrub_rate = 0;  // bytes a second read to look for damage; 0: it does not look
  ByteSpan arena = {};      // Memory's
};

class StorageNode {
 public:
  // All outlive it. Its methods are added to `router` by open(). With the key of `context` it
  // checks what users may do.
  StorageNode(rpc::ClientContext& context, io::Disk& disk, rpc::Router& router,
              const std::vector<net::Address>& managers, StorageOptions options);
  ~StorageNode();
  StorageNode(const StorageNode&) = delete;
  StorageNode& operator=(const StorageNode&) = delete;

  // Opens the disks; a new node's are made first, once a manager has told which cluster it is.
  // Errors: usage (a folder that is no disk), refused (disks of several nodes or clusters, or
  // foreign), busy (another process has one), those of a disk when none can be used.
  Task<Result<void>> open();
  // Once open, and reached at these addresses.
  void start(std::vector<std::string> addresses);
  // Hands over what it serves: returns when the chains go on without it, or cannot.
  Task<void> drain();
  // With no call under way any more. Disks that can be are closed.
  Task<void> close();

  struct DiskState {
    cluster::DiskId id = 0;  // 0: unknown, it could not be read
    std::string dir;
    std::unique_ptr<chunk::Store> store;  // null: could not be opened
    std::string trouble;                  // empty: none
    io::Space space;
  };
  const std::vector<DiskState>& disks() const { return disks_; }
  // After open().
  const cluster::Member& member() const { return live_->member; }
  const std::optional<Error>& trouble() const { return live_->heartbeats.trouble(); }
  // Null: not here.
  Replica* replica(cluster::TargetId id) { return live_ ? live_->replicas.find(id) : nullptr; }

 private:
  struct Kept {
    uint64_t generation = 0;
    cluster::Routing routing;
  };
  // Of a target that cannot be used.
  struct Failure {
    std::string why;
    int64_t again_ns = 0;  // when it is tried again; INT64_MAX: not before a restart
  };
  // What there is once the node knows who it is.
  struct Live {
    Live(StorageNode& node, cluster::Node self, cluster::Routing held);
    cluster::Member member;
    cluster::Heartbeats heartbeats;
    Nodes nodes;
    Pace pace;
    Memory memory;
    ReplicaContext context;
    Replicas replicas;
  };

  // storage_disks.cc: what the disks say.
  chunk::StoreOptions store_options(const std::string& dir) const;
  Result<void> survey();
  Task<Result<cluster::Routing>> ask_routing(cluster::ManagerClient& managers);
  Task<Result<cluster::Routing>> wait_for_routing();
  Task<Result<void>> make_disks();
  Task<Result<void>> make_disk(DiskState& disk);
  Task<Result<void>> open_disks();
  Task<Result<void>> open_disk(DiskState& disk);
  Result<void> read_note(const DiskState& disk);
  Result<void> settle_ids();
  Task<void> keep_note(bool durable);
  void measure();

  // storage_node.cc
  cluster::Node self() const;
  Task<void> work();
  Task<void> make_targets();
  Task<Result<void>> make_target(DiskState& disk, cluster::TargetId id, cluster::ChainId chain);
  Task<void> drop_replaced();
  Task<void> prune();
  Task<void> scrub();
  Task<Result<void>> scrub_target(chunk::Store& store, cluster::TargetId id, Pace& pace);
  static uint64_t room_of(const DiskState& disk);
  void look_at_disks();
  void failed(cluster::TargetId id, const Error& error);
  void try_again();
  DiskState* disk_of(cluster::TargetId id);

  rpc::ClientContext& context_;
  Loop& loop_;
  io::Disk& disk_;
  rpc::Router& router_;
  const std::vector<net::Address> managers_;
  const StorageOptions options_;
  std::vector<DiskState> disks_;
  std::vector<size_t> blank_;  // of the disks: to be made
  std::string cluster_;
  cluster::NodeId node_ = 0;
  Kept kept_;
  std::vector<std::string> addresses_;
  std::unique_ptr<Live> live_;
  std::map<cluster::TargetId, Failure> failed_;
  bool draining_ = false;
  uint64_t noted_version_ = 0;  // of the routing, on the disks
  int64_t measured_ns_ = 0;
  int64_t noted_ns_ = 0;
  Event looked_;  // something has changed
  Gate gate_;
};

}  // namespace ff::chain
