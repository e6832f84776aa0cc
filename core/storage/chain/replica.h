// One target of a chain: stores, forwards, commits and reads chunks, and copies them to a syncing
// successor (storage.md, "Chains"). Decisions are in decisions.h, disk state in
// chunk/chunk_store.h, chain membership in cluster/member.h.
//
// An update that is stored as pending runs as an InflightUpdate of its own: neither the deadline of
// the caller nor a closed connection stops it. It ends by commit, by a definite rejection of the
// successor, or when the target stops serving. In the last case the target that copies to this one
// decides, or this target when it is the first to serve again.
//
// replica_update.cc replicates updates, replica_read.cc reads, replica_sync.cc syncs and returns to
// service, replica_copy.cc copies, replica_reach.cc reports an unreachable successor,
// replica_repair.cc repairs damaged chunks, replica_compare.cc compares replicas, replica_prune.cc
// prunes tombstones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/auth/keyring.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "storage/chain/buffer_pool.h"
#include "storage/chain/chunk_locks.h"
#include "storage/chain/decisions.h"
#include "storage/chain/node_clients.h"
#include "storage/chain/operation_tracker.h"
#include "storage/chain/rate_limiter.h"
#include "storage/chain/service.h"
#include "storage/chain/target_calls.h"
#include "storage/chain/target_metrics.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/chunk_store.h"
#include "storage/cluster/member.h"

namespace ff::chain {

constexpr size_t kChunkPage = 1000;           // chunks per page of a listing
constexpr int64_t kPeerCallNs = 5 * kSecond;  // timeout of a call to another target of the chain

// Shared by the replicas of a node; must outlive them.
struct ReplicaContext {
  Loop& loop;
  cluster::Member& member;
  NodeClients& nodes;
  Rng& rng;
  RateLimiter& copy_limiter;  // limits copies
  BufferPool& buffers;
  Metrics& metrics;
  // Sends a heartbeat now: the member has something to report, or needs newer routing.
  std::function<void()> request_heartbeat;
  // Marks the target as failed for this reason.
  std::function<void(cluster::TargetId, const Error&)> fail_target;
  // Verifies capabilities. Null: there are no keys, and all callers are trusted.
  const auth::Keyring* keyring = nullptr;
  // Shards of the node, which share what its memory allows.
  uint32_t shards = 1;
};

// Outcome of an update.
struct UpdateOutcome {
  chunk::VersionState state = {};
  uint64_t chain_version = 0;
};

class Replica {
 public:
  // Transfers the data of an update into memory and verifies it.
  using PullData = std::function<Task<Result<void>>(ByteSpan into)>;

  Replica(ReplicaContext& context, chunk::ChunkStore& store, cluster::TargetId id,
          cluster::ChainId chain);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  cluster::TargetId id() const { return id_; }
  cluster::ChainId chain() const { return chain_; }
  chunk::ChunkStore& store() { return store_; }
  uint64_t verifier() const { return verifier_; }
  // The verifier sent to clients; it also changes whenever the chain has given up data.
  uint64_t client_verifier() const;
  // Whether the chunk, which does not exist here, was lost with given-up data; otherwise it is a
  // hole of its file.
  bool is_missing(chunk::ChunkId id) const;
  Error missing_error(chunk::ChunkId id) const;
  TargetMetrics& metrics() { return metrics_; }
  // Ready for its role; false during the transition (return_to_service).
  bool ready() const { return ready_; }
  // Whether it is the head, as far as it knows.
  bool is_head() const;
  // Number of running updates, copies and other tasks.
  size_t running_tasks() const { return gate_.running(); }
  // Call when the routing may be newer, or the lease was renewed.
  void on_routing_change();
  // Cancels all tasks where they are, as a process crash would.
  Task<void> close();

  // RPCs of service.h, each under chain version `version`. `pull` transfers `bytes` bytes of data.
  Task<Result<UpdateOutcome>> write(uint64_t version, chunk::Update update, uint64_t bytes,
                                    PullData pull);
  struct Forward {
    chunk::Update update;
    uint64_t bytes = 0;
    bool checked = false;
  };
  Task<Result<UpdateOutcome>> forward(uint64_t version, Forward forward, PullData pull);
  // Reads up to the size of `into`; zero_copy as in chunk::ReadRequest.
  Task<Result<chunk::ReadResult>> read(uint64_t version, chunk::ChunkId id, uint64_t offset,
                                       ByteSpan into, bool zero_copy);
  Task<Result<uint64_t>> committed_version(uint64_t version, chunk::ChunkId id);
  Task<Result<std::optional<chunk::ChunkInfo>>> last_chunk(uint64_t version, uint64_t inode);
  // Chunks of a file in a range; none of them pending.
  Task<Result<chunk::ChunkRangePage>> list_range(uint64_t version, chunk::ChunkRangeQuery asked);
  // Inodes from `from` on that have chunks, pending ones included.
  Result<std::vector<uint64_t>> list_inodes(uint64_t version, uint64_t from, size_t limit);
  // Returns the verifier.
  Task<Result<uint64_t>> sync(uint64_t version);

  // Reports that this replica of the chunk is damaged: the chain rewrites it. The mark stays until
  // then.
  void report_damaged(chunk::ChunkId id);
  // As the head: rewrites the chunk.
  Task<Result<void>> repair(uint64_t version, chunk::ChunkId id);

  // Starts comparing its chunks with those of the successor; a successor that differs fails.
  void start_compare();
  struct Range {
    chunk::ChunkId first;
    chunk::ChunkId last;
  };
  // Chunks of the range in which this target differs from its predecessor (`theirs`). `settled`:
  // none of them is being changed.
  Result<std::vector<chunk::ChunkId>> differing_chunks(uint64_t version,
                                                       std::vector<chunk::ChunkInfo> theirs,
                                                       Range range, bool settled);

  // Starts pruning tombstones that are expired at `now_ns` (wall clock).
  void start_prune(int64_t now_ns);
  // Which of `ids` do not exist here; asked by the successor.
  Task<Result<std::vector<chunk::ChunkId>>> absent_chunks(uint64_t version,
                                                          std::vector<chunk::ChunkId> ids);

  // Calls of the predecessor that copies to this target.
  Result<std::vector<chunk::ChunkInfo>> list(uint64_t version, chunk::ChunkId from, size_t limit);
  Task<Result<void>> erase(uint64_t version, chunk::ChunkId id);
  Task<Result<void>> copy(uint64_t version, chunk::ChunkCopy copy, PullData pull);
  Task<Result<void>> install_results(uint64_t version, std::vector<chunk::ChannelInfo> results);
  Task<Result<void>> finish_copy(uint64_t version, uint64_t verifier);

 private:
  struct InflightUpdate;
  struct CopyJob;

  // replica.cc
  const cluster::Chain* routed_chain() const;
  Error stale(std::string_view why) const;
  Result<ChainRole> check_role(uint64_t version);
  Result<ChainRole> check_readable(uint64_t version);
  Result<void> check_head(uint64_t version);
  Result<ChainRole> check_tail(uint64_t version);
  Result<void> check_syncing(uint64_t version);
  Task<Result<void>> wait_for_change(int64_t most_ns);
  void start_once(bool& running, Task<Result<void>> task);
  void leave_chain();
  void watch_successor(const std::optional<ChainRole>& role);
  Task<void> probe_successor(uint64_t version, cluster::Target to);
  Task<Result<void>> probe_until_reached(uint64_t version, cluster::Target to);

  // Ends with Errc::stale when the chain changes meanwhile. `data` must live until it returns.
  template <class Request, class Reply>
  Task<Result<Reply>> call(cluster::NodeId node, rpc::Method<Request, Reply> method,
                           Request request, ByteView data, int64_t timeout_ns) {
    const int64_t now_ns = context_.loop.now_ns();
    const bool watched = node == successor_;
    if (watched && unanswered_since_ns_ == 0) unanswered_since_ns_ = now_ns;
    auto reply =
        co_await calls_.call(chain_, node, method, std::move(request), data, now_ns + timeout_ns);
    if (watched && node == successor_ && answered(reply)) unanswered_since_ns_ = 0;
    co_return reply;
  }
  // Any response proves that the target is reachable; a local error proves nothing.
  template <class Reply>
  static bool answered(const Result<Reply>& reply) {
    if (reply) return true;
    const Errc code = reply.error().code;
    return code != Errc::unreachable && code != Errc::deadline && code != Errc::interrupted;
  }
  wire::Place place_of(cluster::TargetId target, uint64_t version) const;

  // replica_update.cc
  std::optional<chunk::ChannelResult> channel_result(const chunk::RequestId& request_id) const;
  std::shared_ptr<InflightUpdate> resume_pending(ChunkLocks::Lock hold,
                                                 const chunk::PendingState& pending,
                                                 chunk::ChunkId id);
  std::shared_ptr<InflightUpdate> begin_update(ChunkLocks::Lock hold, const chunk::Update& update,
                                               BufferPool::Buffer bytes);
  Task<Result<void>> pull_data(InflightUpdate& inflight, uint64_t bytes, PullData pull);
  void fill_zeros(InflightUpdate& inflight);
  Task<Result<UpdateOutcome>> record_unchanged(chunk::Update update, chunk::ChunkState state);
  Task<Result<UpdateOutcome>> run_to_end(std::shared_ptr<InflightUpdate> inflight);
  Task<void> run_update(std::shared_ptr<InflightUpdate> inflight);
  Task<Result<UpdateOutcome>> replicate(InflightUpdate& inflight);
  std::optional<uint64_t> tail_chain_version();
  Task<Result<void>> store_update(InflightUpdate& inflight, std::optional<uint64_t> commit_under);
  Error store_failed(Error error);
  Error copy_failed(Error error);
  Error fail_target(Error error);
  Task<Result<UpdateOutcome>> store_replacement(InflightUpdate& inflight);
  Task<Result<UpdateOutcome>> forward_to_successor(InflightUpdate& inflight, ChainRole role,
                                                   cluster::Target successor, uint64_t version);
  Task<Result<UpdateOutcome>> commit(InflightUpdate& inflight, uint64_t chain_version);
  Result<UpdateOutcome> commit_soon(InflightUpdate& inflight, uint64_t chain_version);
  Task<Result<void>> read_whole(InflightUpdate& inflight);
  Task<Result<void>> check_own_copy(InflightUpdate& inflight, Error error);
  Task<Result<UpdateOutcome>> drop_pending(InflightUpdate& inflight, Error error);
  Task<Result<void>> resolve_pending(chunk::ChunkId id);
  Task<Result<bool>> own_is_sound(chunk::ChunkId id, chunk::VersionKind kind);

  // replica_read.cc
  Task<Result<std::optional<chunk::VersionKind>>> committed_kind(uint64_t version,
                                                                 chunk::ChunkId id);
  void count(chunk::ChunkId id, const Result<chunk::ReadResult>& read);

  // replica_prune.cc
  Task<Result<void>> prune(int64_t now_ns);
  Task<Result<std::vector<chunk::ChunkId>>> pruned_by_predecessor(std::vector<chunk::ChunkId> ids,
                                                                  uint64_t version);

  // replica_compare.cc
  Task<Result<void>> compare_all();
  Task<Result<void>> compare_one(uint64_t version, chunk::ChunkId id);
  Task<Result<std::vector<chunk::ChunkId>>> request_differences(
      uint64_t version, cluster::Target who, std::vector<chunk::ChunkInfo> chunks, Range range,
      bool settled = false);

  // replica_repair.cc
  void start_repairs();
  Task<void> run_repairs();
  struct RepairProgress;
  Task<void> repair_all(RepairProgress& progress);
  Task<void> repair_one(chunk::ChunkId id, RepairProgress& progress);
  Task<Result<void>> request_repair(chunk::ChunkId id);
  Task<Result<void>> read_sound_replica(uint64_t version, chunk::ChunkId id,
                                        chunk::VersionState wanted, ByteSpan into);

  // replica_sync.cc
  Task<void> return_to_service(uint64_t epoch);
  Task<Result<void>> prepare_to_serve();
  Task<Result<void>> resolve_all_pending();
  Task<void> prepare_to_sync(uint64_t epoch);
  Task<Result<void>> sync_successor(uint64_t version, cluster::Target to);

  // replica_copy.cc
  Task<void> run_copy(uint64_t version);
  Task<Result<void>> copy_all(CopyJob& job);
  Task<Result<void>> copy_page(CopyJob& job, std::vector<chunk::ChunkInfo> remote,
                               std::vector<chunk::ChunkInfo> local, chunk::ChunkId end);
  Task<Result<void>> copy_chunk(CopyJob& job, chunk::ChunkId id);
  Task<Result<void>> copy_whole(CopyJob& job, chunk::ChunkId id, const chunk::ChunkState& state);
  Task<Result<void>> salvage(chunk::ChunkId id, ByteSpan into, wire::CopyRequest& request);
  Task<Result<void>> copy_results(CopyJob& job);
  Task<Result<bool>> is_sound(chunk::ChunkId id);

  ReplicaContext& context_;
  chunk::ChunkStore& store_;
  const cluster::TargetId id_;
  const cluster::ChainId chain_;
  TargetMetrics metrics_;
  uint64_t verifier_ = 0;
  ChunkLocks locks_;
  TargetCalls calls_;

  uint64_t seen_version_ = 0;  // chain version seen by on_routing_change()
  cluster::TargetState seen_state_ = cluster::TargetState::offline;
  uint64_t epoch_ = 0;               // incremented when the state of the target changes
  OperationTracker operations_;      // operations that change chunks
  bool ready_ = false;               // ready for its role in this epoch
  bool power_lost_ = false;          // updates may be lost and the verifier is still the old one
  uint64_t copying_ = 0;             // chain version under which it copies or has copied
  cluster::NodeId successor_ = 0;    // node of the successor; 0: none
  int64_t unanswered_since_ns_ = 0;  // since when calls to the successor are unanswered; 0: none is
  bool probing_ = false;
  bool repairing_ = false;
  bool pruning_ = false;
  bool comparing_ = false;
  Event changed_;
  Gate gate_;
};

}  // namespace ff::chain
