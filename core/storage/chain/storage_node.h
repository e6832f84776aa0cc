// A storage node: its disks, divided among shards (storage_shard.h), and its cluster membership
// (storage.md, "Objects"). `ff serve-storage` runs one; the chain scenario of `ff sim` runs
// several.
//
// The identity of a node is stored on its disks: cluster and node in the identity file of each
// disk, the generation of its last process and the newest routing in the owner record of each chunk
// store.
//
// The node belongs to the loop of the first shard, which has the member whose routing counts: it
// sends the heartbeats, with what all shards report, and passes each response on before the next
// heartbeat. So a heartbeat never confirms what a shard does not know yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/io/disk.h"
#include "platform/rpc/client.h"
#include "storage/chain/storage_shard.h"
#include "storage/cluster/heartbeat_sender.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/member.h"

namespace ff::chain {

class StorageNode {
 public:
  // `shards`: at least one; the first is that of the caller's loop. All arguments must outlive the
  // node. open() adds the methods of the shards to their routers.
  StorageNode(std::vector<ShardContext> shards, io::Disk& disk,
              const std::vector<net::Address>& managers, StorageOptions options);
  ~StorageNode();
  StorageNode(const StorageNode&) = delete;
  StorageNode& operator=(const StorageNode&) = delete;

  // Opens the disks. For a new node, creates them first, after a manager has told the cluster id.
  // Errors: usage (a folder is no disk), refused (disks of several nodes or clusters, or no disk of
  // ff), busy (another process has a disk open); those of a disk when none is usable.
  Task<Result<void>> open();
  // Starts serving. Call after open(), with the addresses at which clients reach the node.
  Task<void> start(std::vector<std::string> addresses);
  // Takes its targets out of service: returns when the chains continue without them, or cannot.
  Task<void> drain();
  // Call when no RPC is running. Closes the disks that can be closed.
  Task<void> close();

  const std::vector<std::unique_ptr<StorageShard>>& shards() const { return shards_; }
  // The disks of all shards a moment ago.
  std::vector<DiskStatus> status() const;
  // Call after open().
  const cluster::Member& member() const { return first().member(); }
  const std::optional<Error>& heartbeat_error() const { return heartbeats_->last_error(); }
  // Null: the node has no such target. Only if all shards have one loop.
  Replica* replica(cluster::TargetId id);

 private:
  StorageShard& first() const { return *shards_.front(); }
  StorageShard& shard_of(const FoundDisk& disk) const;

  // storage_node_disks.cc: identities and records of the disks.
  Result<void> read_identities();
  Task<Result<cluster::Routing>> fetch_routing(cluster::ManagerClient& managers);
  Task<Result<cluster::Routing>> wait_for_routing();
  Task<Result<void>> create_disks();
  Task<Result<void>> open_disks();
  Task<Result<void>> open_disk(FoundDisk& disk, bool create);
  Result<void> assign_disk_ids();
  void add_absent_disks(const cluster::NodeInfo& before);

  // storage_node.cc
  void request_heartbeat();
  Task<cluster::NodeInfo> self();
  Task<void> add_reports(cluster::Heartbeat& beat);
  Task<void> pass_on(int64_t sent_ns, const cluster::HeartbeatResponse& answer);
  bool is_in_use() const;

  rpc::ClientContext& context_;
  Loop& loop_;
  io::Disk& disk_;
  const std::vector<net::Address> managers_;
  const StorageOptions options_;
  std::vector<std::unique_ptr<StorageShard>> shards_;
  std::vector<FoundDisk> disks_;  // in the order of the folders
  std::vector<size_t> blank_;     // indices of disks to be created
  std::string cluster_;
  cluster::NodeId node_ = 0;
  NodeRecord saved_;
  std::string held_back_;  // by another shard than the first (HeartbeatRequest::held_back)
  std::unique_ptr<cluster::HeartbeatSender> heartbeats_;  // null before open()
  Gate gate_;
};

}  // namespace ff::chain
