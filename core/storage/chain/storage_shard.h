// A shard of a storage node: one loop, with the disks that it owns and their targets, memory and
// connections. `ff serve-storage` runs one shard per core; a disk always belongs to the same one.
// Shards share nothing that changes: each has a cluster::Member of its own, and StorageNode
// combines their heartbeats and gives them the responses, so that all know the same routing.
//
// A failed disk takes down its own targets only; the shard opens it again from time to time, and
// when it works its targets return as ones that have missed updates. All functions run in the loop
// of the shard, except those that say otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  std::optional<chunk::MetadataLogLimits> log = {};  // nothing: as suits the size of each disk
  chunk::CommitOn commit_on = chunk::CommitOn::thread;
  uint64_t copy_rate = 0;           // bytes per second of copies to syncing targets; 0: no limit
  uint64_t scrub_rate = 0;          // bytes per second of scrubbing; 0: no scrubbing
  ByteSpan arena = {};              // arenas of the BufferPools
  io::Disk* memory_disk = nullptr;  // see chunk::ChunkStoreOptions
  std::string memory_dir = {};
};

// The loop of a shard and what belongs to it. A router gets the methods of the shard.
struct ShardContext {
  rpc::ClientContext& client;
  rpc::Router& router;
};

// A folder given to the node, or a disk that it had.
struct FoundDisk {
  cluster::DiskId id = 0;  // 0: unknown because the disk could not be read
  std::string dir;
  std::string error = {};  // why it is not to be opened now; empty: none
  bool absent = false;     // known, but not among the folders of this process
};

// What the disks of a node have stored about it.
struct NodeRecord {
  uint64_t generation = 0;
  cluster::Routing routing;
};

// Whether the operator must correct it: a disk in use by another process, or of another node. An
// unreadable disk is a failure that the node tolerates.
bool is_operator_error(const Error& error);

struct OpenedDisk {
  NodeRecord record = {};
  std::string error = {};  // not empty: it is not open, because it does not work
};

// A disk as the status page shows it.
struct DiskStatus {
  cluster::DiskId id = 0;
  std::string dir;
  uint32_t shard = 0;
  std::string error;
  bool replaced = false;
  bool open = false;
  bool direct = false;
  io::Space space;
  std::vector<chunk::TargetInfo> targets;
};

// Which shard of how many.
struct ShardNumber {
  uint32_t index = 0;
  uint32_t count = 1;
};

class StorageShard {
 public:
  // Called in the loop of the shard.
  using RequestHeartbeat = std::function<void()>;

  // All arguments must outlive it.
  StorageShard(ShardContext context, io::Disk& disk, const StorageOptions& options,
               ShardNumber number, RequestHeartbeat request_heartbeat);
  ~StorageShard();
  StorageShard(const StorageShard&) = delete;
  StorageShard& operator=(const StorageShard&) = delete;

  // For run_on(): any thread.
  Loop& loop() const { return loop_; }
  Gate& calls() { return calls_; }

  struct DiskState {
    cluster::DiskId id = 0;
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
  // Of this shard's copy of the routing; after begin().
  cluster::Member& member() { return runtime_->member; }
  ReplicaService& replicas() { return runtime_->replicas; }
  // Null: the shard has no such target.
  Replica* replica(cluster::TargetId id) {
    return runtime_ ? runtime_->replicas.find(id) : nullptr;
  }

  // In this order: the disks, with begin() last, which makes the targets known; then start().
  void set_identity(std::string cluster, cluster::NodeId node);
  // Creates the disk first if `create`. Errors: those that the operator must correct; a disk that
  // does not work is kept as a failed one.
  Task<Result<OpenedDisk>> open_disk(FoundDisk found, bool create);
  // A disk that is not to be opened now.
  void add_disk(FoundDisk found);
  // The disks as the node reports them, in the order in which they came.
  std::vector<cluster::DiskInfo> disk_infos();
  Task<void> begin(cluster::NodeInfo self, cluster::Routing held);
  void start(std::vector<std::string> addresses);

  // What the shard reports of its disks and targets, in place of what `beat` has of them; and the
  // response to the heartbeat with it, which was sent at `sent_ns`.
  cluster::Heartbeat next_heartbeat();
  void on_response(int64_t sent_ns, const cluster::HeartbeatResponse& answer);
  // Call when the routing has changed.
  void on_routing_change();
  std::string held_back() const { return runtime_->replicas.held_back(); }

  // Reports its targets as unusable from now on.
  void drain();
  // Call when no RPC is running. Closes the disks that can be closed.
  Task<void> close();

  // The disks a moment ago. Any thread.
  std::vector<DiskStatus> status() const;

 private:
  // Why a target is unusable.
  struct Failure {
    std::string reason;
    int64_t retry_ns = 0;  // time of the next attempt
  };
  // Parts that exist once the identity of the node is known.
  struct Runtime {
    Runtime(StorageShard& shard, cluster::NodeInfo self, cluster::Routing held);
    cluster::Member member;
    NodeClients nodes;
    RateLimiter copy_limiter;
    BufferPool buffers;
    ReplicaContext context;
    ReplicaService replicas;
  };

  // storage_shard_reopen.cc: failed disks and targets return.
  void reopen_failed_disks();
  Task<void> reopen(DiskState& disk);
  Task<Result<void>> close_failed(DiskState& disk);
  Task<Result<void>> open_again(DiskState& disk, bool failed);
  void on_target_failed(cluster::TargetId id, const Error& error);
  void retry_failed_targets();

  // storage_shard.cc
  chunk::MetadataLogLimits log_limits(const std::string& dir) const;
  chunk::ChunkStoreOptions store_options(const std::string& dir) const;
  ByteSpan arena() const;
  uint64_t share_of(uint64_t rate) const;
  Task<void> run();
  Task<void> create_targets();
  Task<Result<void>> create_target(DiskState& disk, cluster::TargetId id, cluster::ChainId chain);
  Task<void> remove_replaced_targets();
  Task<void> save_node_record(bool durable);
  void forget_replaced_disks();
  void measure_disks();
  Task<void> prune();
  Task<void> scrub();
  Task<Result<void>> scrub_target(chunk::ChunkStore& store, cluster::TargetId id,
                                  RateLimiter& limiter);
  static uint64_t available_bytes(const DiskState& disk);
  void report_disks();
  void report_targets(const DiskState& disk, cluster::DiskUsage& usage,
                      const std::vector<chunk::TargetInfo>& targets);
  DiskState* disk_of(cluster::TargetId id);

  rpc::ClientContext& context_;
  Loop& loop_;
  io::Disk& disk_;
  rpc::Router& router_;
  const StorageOptions& options_;
  const ShardNumber number_;
  const RequestHeartbeat request_heartbeat_;
  std::string cluster_;
  cluster::NodeId node_ = 0;
  std::vector<DiskState> disks_;
  std::unique_ptr<Runtime> runtime_;
  cluster::Heartbeat sent_;  // the part of this shard of the last heartbeat
  std::map<cluster::TargetId, Failure> failed_;
  std::map<cluster::TargetId, int64_t> retry_delays_ns_;  // of targets that have failed before
  bool draining_ = false;
  uint64_t saved_version_ = 0;  // routing version stored on the disks
  int64_t measured_ns_ = 0;
  int64_t saved_ns_ = 0;
  mutable std::mutex status_mutex_;
  std::vector<DiskStatus> status_;  // guarded by status_mutex_
  Event changed_;                   // wakes run()
  Gate gate_;
  Gate calls_;
};

}  // namespace ff::chain
