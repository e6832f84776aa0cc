// A storage node: its disks with their targets, its cluster membership, and its RPC service
// (storage.md, "Objects"). `ff serve-storage` runs one; the chain scenario of `ff sim` runs
// several.
//
// The identity of a node is stored on its disks: cluster and node in the identity file of each
// disk, the generation of its last process and the newest routing in the owner record of each chunk
// store. A failed disk takes down its own targets only; the node opens it again from time to time,
// and when it works its targets return as ones that have missed updates. Owned by one loop.
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
#include "storage/chain/node_clients.h"
#include "storage/chain/rate_limiter.h"
#include "storage/chain/replica_service.h"
#include "storage/chunk/chunk_store.h"
#include "storage/cluster/heartbeat_sender.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/member.h"

namespace ff::chain {

struct StorageOptions {
  std::vector<std::string> dirs = {};  // one per disk
  cluster::NodeId node =
      0;                  // id of a new node, 0: chosen at random; for an existing node: must match
  std::string name = {};  // for display
  std::string domain = {};   // failure domain (routing.h)
  std::string boot_id = {};  // boot id of the machine, see chunk::ChunkStoreOptions
  bool format = false;       // also create disks in empty folders of an existing node
  bool direct = true;        // see chunk::ChunkStoreOptions
  uint64_t buffered_write_max = chunk::kBufferedWriteMax;
  uint64_t log_segment_bytes = chunk::kLogSegmentBytes;
  chunk::CommitOn commit_on = chunk::CommitOn::thread;
  uint64_t copy_rate = 0;           // bytes per second of copies to syncing targets; 0: no limit
  uint64_t scrub_rate = 0;          // bytes per second of scrubbing; 0: no scrubbing
  ByteSpan arena = {};              // arena of the BufferPool
  io::Disk* memory_disk = nullptr;  // see chunk::ChunkStoreOptions
  std::string memory_dir = {};
};

class StorageNode {
 public:
  // All arguments must outlive it. open() adds its methods to `router`.
  StorageNode(rpc::ClientContext& context, io::Disk& disk, rpc::Router& router,
              const std::vector<net::Address>& managers, StorageOptions options);
  ~StorageNode();
  StorageNode(const StorageNode&) = delete;
  StorageNode& operator=(const StorageNode&) = delete;

  // Opens the disks. For a new node, creates them first, after a manager has told the cluster id.
  // Errors: usage (a folder is no disk), refused (disks of several nodes or clusters, or no disk of
  // ff), busy (another process has a disk open); those of a disk when none is usable.
  Task<Result<void>> open();
  // Starts serving. Call after open(), with the addresses at which clients reach the node.
  void start(std::vector<std::string> addresses);
  // Takes its targets out of service: returns when the chains continue without them, or cannot.
  Task<void> drain();
  // Call when no RPC is running. Closes the disks that can be closed.
  Task<void> close();

  struct DiskState {
    cluster::DiskId id = 0;  // 0: unknown because the disk could not be read
    std::string dir;
    std::shared_ptr<chunk::ChunkStore> store;  // null: not open
    std::string error;                         // empty: none
    bool absent = false;                       // known, but not among the folders of this process
    bool replaced = false;  // absent, and no target or kept replica is on it any more
    io::Space space;
    bool reopening = false;
    int64_t reopen_ns = 0;        // time of the next attempt to open it again
    int64_t reopen_delay_ns = 0;  // before that attempt
    int64_t opened_ns = 0;        // since when the store is open
  };
  const std::vector<DiskState>& disks() const { return disks_; }
  // Call after open().
  const cluster::Member& member() const { return runtime_->member; }
  const std::optional<Error>& heartbeat_error() const { return runtime_->heartbeats.last_error(); }
  // Null: the node has no such target.
  Replica* replica(cluster::TargetId id) {
    return runtime_ ? runtime_->replicas.find(id) : nullptr;
  }

 private:
  struct SavedState {
    uint64_t generation = 0;
    cluster::Routing routing;
  };
  // Why a target is unusable.
  struct Failure {
    std::string reason;
    int64_t retry_ns = 0;  // time of the next attempt
  };
  // Parts that exist once the identity of the node is known.
  struct Runtime {
    Runtime(StorageNode& node, cluster::NodeInfo self, cluster::Routing held);
    cluster::Member member;
    cluster::HeartbeatSender heartbeats;
    NodeClients nodes;
    RateLimiter copy_limiter;
    BufferPool buffers;
    ReplicaContext context;
    ReplicaService replicas;
  };

  // storage_node_disks.cc: identities and records of the disks.
  chunk::ChunkStoreOptions store_options(const std::string& dir) const;
  Result<void> read_identities();
  Task<Result<cluster::Routing>> fetch_routing(cluster::ManagerClient& managers);
  Task<Result<cluster::Routing>> wait_for_routing();
  Task<Result<void>> create_disks();
  Task<Result<void>> create_disk(DiskState& disk);
  Task<Result<void>> open_disks();
  Task<Result<void>> open_disk(DiskState& disk);
  Result<void> load_node_record(const DiskState& disk);
  Result<void> assign_disk_ids();
  Task<void> save_node_record(bool durable);
  void forget_replaced_disks();
  void measure_disks();

  // storage_node_reopen.cc: failed disks and targets return.
  void reopen_failed_disks();
  Task<void> reopen(DiskState& disk);
  Task<Result<void>> close_failed(DiskState& disk);
  Task<Result<void>> open_again(DiskState& disk, bool failed);
  void on_target_failed(cluster::TargetId id, const Error& error);
  void retry_failed_targets();

  // storage_node.cc
  cluster::NodeInfo self() const;
  Task<void> run();
  Task<void> create_targets();
  Task<Result<void>> create_target(DiskState& disk, cluster::TargetId id, cluster::ChainId chain);
  Task<void> remove_replaced_targets();
  Task<void> prune();
  Task<void> scrub();
  Task<Result<void>> scrub_target(chunk::ChunkStore& store, cluster::TargetId id,
                                  RateLimiter& limiter);
  static uint64_t available_bytes(const DiskState& disk);
  void report_disks();
  DiskState* disk_of(cluster::TargetId id);

  rpc::ClientContext& context_;
  Loop& loop_;
  io::Disk& disk_;
  rpc::Router& router_;
  const std::vector<net::Address> managers_;
  const StorageOptions options_;
  std::vector<DiskState> disks_;
  std::vector<size_t> blank_;  // indices of disks to be created
  std::string cluster_;
  cluster::NodeId node_ = 0;
  SavedState saved_;
  std::vector<std::string> addresses_;
  std::unique_ptr<Runtime> runtime_;
  std::map<cluster::TargetId, Failure> failed_;
  std::map<cluster::TargetId, int64_t> retry_delays_ns_;  // of targets that have failed before
  bool draining_ = false;
  uint64_t saved_version_ = 0;  // routing version stored on the disks
  int64_t measured_ns_ = 0;
  int64_t saved_ns_ = 0;
  Event changed_;  // wakes run()
  Gate gate_;
};

}  // namespace ff::chain
