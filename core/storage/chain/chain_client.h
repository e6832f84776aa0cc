// Client of chains: sends updates to the head of a chain, reads from any serving target, and
// retries until success or timeout. Owned by one loop.
//
// An update is applied once however often it is sent: it occupies a channel of the client, which
// carries one update at a time, and has the next sequence number of that channel. An update that
// timed out may still be applied until the next update of its channel.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/backoff.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "storage/chain/hedge_policy.h"
#include "storage/chain/node_clients.h"
#include "storage/chain/service.h"
#include "storage/chain/target_calls.h"
#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

// Total time for an update, a read or a sync. The results of updates are kept longer
// (chunk::kRetentionNs).
constexpr int64_t kRetryTimeoutNs = 60 * kSecond;

class ChainClient {
 public:
  // Call on_routing_change() whenever the routing has changed. The client calls `refresh` when the
  // routing seems outdated. All arguments must outlive the client.
  ChainClient(rpc::ClientContext& context, const cluster::Routing& routing,
              std::function<void()> refresh);
  ~ChainClient();

  void on_routing_change();
  Task<void> close();

  struct UpdateResult {
    chunk::VersionState state = {};  // of the chunk after the update
    uint64_t verifier = 0;           // service.h
  };
  // Fields of `update` that the caller sets: id, type, offset, length, data, chunk_size and
  // expected_version. An update that changes nothing (expected_version differs, or there is nothing
  // to remove) succeeds and returns the state of the chunk. Errors: disk_full, usage, refused,
  // corrupt: nothing was changed; deadline, interrupted: the update may have been applied.
  // `capability`: required for untrusted users (capability.h); if it expires during retries, the
  // outcome is open (interrupted), so it should be valid for longer than kRetryTimeoutNs.
  Task<Result<UpdateResult>> update(cluster::ChainId chain, chunk::Update update,
                                    std::string capability = {});

  struct ReadIo {
    cluster::ChainId chain = 0;
    chunk::ChunkId id = {};
    uint64_t offset = 0;
    ByteSpan into = {};
    std::string_view capability = {};  // required for untrusted users; must live as long as `into`
  };
  struct ReadResult {
    chunk::VersionState state = {};  // version that was read
    uint64_t bytes = 0;              // less than requested at the end of the chunk
  };
  // Returns one result per read. When it returns, no node writes to the memory any more. Errors:
  // not_found, refused (capability.h), corrupt (on all replicas), deadline, interrupted.
  Task<std::vector<Result<ReadResult>>> read(std::vector<ReadIo> ios);

  // Makes all updates acknowledged before durable on all replicas. Returns the verifier; an update
  // is covered only if it was acknowledged with the same verifier.
  Task<Result<uint64_t>> sync(cluster::ChainId chain);

  struct FoundChunk {
    chunk::ChunkId id = {};
    chunk::VersionState state = {};
  };
  // The last chunk of a file in one of its chains.
  Task<Result<std::optional<FoundChunk>>> last_chunk(cluster::ChainId chain, uint64_t inode,
                                                     std::string capability = {});

  // The chunks of a file in one of its chains, in a range of indices, in order. Errors: refused,
  // unsupported; corrupt: a run is requested (step) where chunks are known to be missing.
  struct ChunkQuery {
    uint64_t inode = 0;
    uint64_t from = 0;
    uint64_t end = 0;    // exclusive; 0: no limit
    uint32_t limit = 0;  // at most kChunksMax
    uint64_t step = 0;   // not 0: also count the run that starts at the first chunk
  };
  struct ChunkList {
    std::vector<FoundChunk> chunks = {};
    uint64_t run = 0;  // number of chunks `step` apart without a gap; kRunMax: possibly more
    std::optional<uint64_t> next = {};  // continue at this index; nothing: complete
    std::optional<uint64_t> verifier =
        {};  // service.h, at the time of the query; nothing: an older node
  };
  Task<Result<ChunkList>> list_chunks(cluster::ChainId chain, ChunkQuery query,
                                      std::string capability = {});

  // Inodes from `from` on that have chunks in the chain, in order. Fewer than `limit` (at most
  // kInodesMax): complete.
  Task<Result<std::vector<uint64_t>>> list_inodes(cluster::ChainId chain, uint64_t from,
                                                  uint32_t limit);

 private:
  class Retry;
  struct ReadAttempt;
  struct Batch;
  struct Channel;
  struct ReadState;
  class HedgedRead;

  wire::Place place_of(const cluster::Chain& chain, cluster::TargetId target) const;
  // chain_client_read.cc
  const cluster::Target* choose_target(const cluster::Chain& chain,
                                       const std::set<cluster::TargetId>& failed);
  std::vector<Batch> make_batches(ReadState& state, Retry& retry);
  const cluster::Target* hedge_target(const ReadState& state, const Batch& batch);
  wire::ReadRequest read_request_of(const ReadState& state, const Batch& batch,
                                    cluster::TargetId target) const;
  Task<void> read_from(const ReadState& state, const Batch& batch, cluster::Target target,
                       const std::vector<ByteSpan>& into, int64_t deadline_ns,
                       ReadAttempt& attempt);
  Task<void> read_batch(const ReadState& state, Batch& batch, int64_t deadline_ns);
  Task<void> read_batches(const ReadState& state, std::vector<Batch>& made, int64_t deadline_ns);
  void collect_results(ReadState& state, Batch& batch, Retry& retry);

  rpc::ClientContext& context_;
  const cluster::Routing& routing_;
  const std::function<void()> refresh_;
  NodeClients nodes_;
  TargetCalls calls_;
  const uint64_t id_;
  std::map<cluster::ChainId, uint64_t> seen_;         // chain versions used by pending calls
  std::map<cluster::NodeId, size_t> inflight_reads_;  // reads in flight
  HedgePolicy hedge_;
  Counter& hedged_;
  Semaphore channels_;
  std::vector<uint64_t> sequences_;  // last sequence number of each channel
  std::vector<size_t> free_;         // numbers of the free channels
  Event changed_;
};

}  // namespace ff::chain
