// What programs do with chunks: updates at the head of a chain, reads from any target that serves,
// and both again until they are done or their time is over. Owned by one loop.
//
// An update is done once, however often it is sent: each takes a channel of the client's, which has
// one update at a time, and the sequence that comes next on it. One whose time was over may still
// happen, until the client's next update of that channel.
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
#include "storage/chain/calls.h"
#include "storage/chain/hedge.h"
#include "storage/chain/nodes.h"
#include "storage/chain/service.h"
#include "storage/chunk/chunk.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

// In all, for an update, a read or a sync: results of updates are kept longer (chunk::kKeptNs).
constexpr int64_t kPatienceNs = 60 * kSecond;

class Client {
 public:
  // The routing may change: then look() is called. `refresh` is told when it is too old. All
  // outlive the client.
  Client(rpc::ClientContext& context, const cluster::Routing& routing,
         std::function<void()> refresh);
  ~Client();

  void look();
  Task<void> close();

  struct Updated {
    chunk::VersionState image = {};  // what the update made of the chunk
    uint64_t verifier = 0;           // service.h
  };
  // `update`: id, change, offset, length, data, chunk size and only_version. One that changes
  // nothing - for that, or there is nothing to remove - ends well, with the chunk as it is. Errors:
  // disk_full, usage, refused,
  // corrupt: nothing was changed; deadline, interrupted: it may have been. `capability`: what a
  // user needs (capability.h). One that expires while it is tried again leaves it open
  // (interrupted): let it hold for longer than kPatienceNs.
  Task<Result<Updated>> update(cluster::ChainId chain, chunk::Update update,
                               std::string capability = {});

  struct Piece {
    cluster::ChainId chain = 0;
    chunk::ChunkId id = {};
    uint64_t offset = 0;
    ByteSpan into = {};
    std::string_view capability = {};  // of a user; lives as long as `into`
  };
  struct Got {
    chunk::VersionState image = {};  // of the version that was read
    uint64_t bytes = 0;              // fewer than asked for at the chunk's end
  };
  // One result a piece; no node writes to memory of the pieces any more when it ends. Errors:
  // not_found, refused (capability.h), corrupt (on all replicas), deadline, interrupted.
  Task<std::vector<Result<Got>>> read(std::vector<Piece> pieces);

  // Everything that was acknowledged before is durable, if the verifier is the one that came with
  // the acknowledgement.
  Task<Result<uint64_t>> sync(cluster::ChainId chain);

  struct Last {
    chunk::ChunkId id = {};
    chunk::VersionState image = {};
  };
  // Of a file, in one of its chains.
  Task<Result<std::optional<Last>>> last(cluster::ChainId chain, uint64_t inode,
                                         std::string capability = {});

  // Those of a file in one of its chains, in a range of indexes, in order. Errors: refused,
  // unsupported; corrupt: the length of a run is asked for, where some chunks are known to be
  // missing.
  struct Chunks {
    uint64_t inode = 0;
    uint64_t from = 0;
    uint64_t end = 0;    // before this one; 0: all
    uint32_t limit = 0;  // at most kChunksMax
    uint64_t step = 0;   // not 0: how long the first one's run is, too
  };
  struct Found {
    std::vector<Last> chunks = {};
    uint64_t run = 0;  // so many, each `step` behind the one before; kRunMax: perhaps more
    std::optional<uint64_t> next = {};      // to be asked from there on
    std::optional<uint64_t> verifier = {};  // service.h, at the look; none: an older node
  };
  Task<Result<Found>> chunks(cluster::ChainId chain, Chunks asked, std::string capability = {});

  // Files from `from` on that have chunks there, in order; fewer than `limit` (at most kInodesMax):
  // these are all.
  Task<Result<std::vector<uint64_t>>> inodes(cluster::ChainId chain, uint64_t from, uint32_t limit);

 private:
  class Attempts;
  struct Asked;
  struct Batch;
  struct Channel;
  struct Reading;
  class Second;

  wire::Place place_of(const cluster::Chain& chain, cluster::TargetId target) const;
  // client_read.cc
  const cluster::Target* choose(const cluster::Chain& chain,
                                const std::set<cluster::TargetId>& failed);
  std::vector<Batch> batches(Reading& reading, Attempts& attempts);
  const cluster::Target* another(const Reading& reading, const Batch& batch);
  wire::ReadRequest request_of(const Reading& reading, const Batch& batch,
                               cluster::TargetId target) const;
  Task<void> ask(const Reading& reading, const Batch& batch, cluster::Target target,
                 const std::vector<ByteSpan>& into, int64_t deadline_ns, Asked& asked);
  Task<void> read_batch(const Reading& reading, Batch& batch, int64_t deadline_ns);
  Task<void> read_batches(const Reading& reading, std::vector<Batch>& made, int64_t deadline_ns);
  void take(Reading& reading, Batch& batch, Attempts& attempts);

  rpc::ClientContext& context_;
  const cluster::Routing& routing_;
  const std::function<void()> refresh_;
  Nodes nodes_;
  Calls calls_;
  const uint64_t id_;
  std::map<cluster::ChainId, uint64_t> seen_;  // versions of chains with calls, by look()
  std::map<cluster::NodeId, size_t> reading_;  // pieces under way
  Hedge hedge_;
  Counter& hedged_;
  Semaphore channels_;
  std::vector<uint64_t> sequences_;  // of the channels' last updates
  std::vector<size_t> free_;         // channels
  Event changed_;
};

}  // namespace ff::chain
