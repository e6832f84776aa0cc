// replica_prune.cc: forgetting tombstones, the head first. Each target after it asks the one
// before: so whoever has none has none before it either, and a chunk that comes into being anew, as
// version 1, meets tombstones at most, which are as old as theirs were (decisions.h, forget).
#include <algorithm>
#include <utility>

#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;

namespace {

constexpr size_t kPruneAtOnce = 1000;  // chunks

}  // namespace

void Replica::prune_at(int64_t now_ns) { begin_once(pruning_, prune(now_ns)); }

Task<Result<void>> Replica::prune(int64_t now_ns) {
  const uint64_t version = routed()->version;
  FF_CO_TRY(const Part part, take_part(version));
  if (!part.serves) co_return Result<void>();
  std::vector<ChunkId> ids = store_.old_tombstones(id_, now_ns, kPruneAtOnce);
  std::erase_if(ids, [this](ChunkId id) { return missing(id); });  // they tell what is none
  if (ids.empty()) co_return Result<void>();
  if (!part.head) {
    auto asking = forgotten_before(std::move(ids), version);
    FF_CO_TRY(ids, co_await std::move(asking));
  }
  std::vector<ChunkLocks::Hold> holds;
  for (const ChunkId id : ids) {
    auto locking = locks_.take(id);
    FF_CO_TRY(auto hold, co_await std::move(locking));
    holds.push_back(std::move(hold));
  }
  FF_CO_TRY(take_part(version));
  auto pruning = store_.prune_tombstones(id_, std::move(ids));
  const auto pruned = co_await std::move(pruning);
  if (!pruned) co_return store_failed(pruned.error());
  co_return Result<void>();
}

// By the target before this one.
Task<Result<std::vector<ChunkId>>> Replica::forgotten_before(std::vector<ChunkId> ids,
                                                             uint64_t version) {
  const auto& targets = routed()->targets;
  const cluster::Target before = *std::prev(std::ranges::find(targets, id_, &cluster::Target::id));
  wire::AbsentRequest request;
  *request.mutable_place() = place_of(before.id, version);
  for (const ChunkId id : ids) *request.add_chunks() = to_wire(id);
  auto calling = call(before.node, kAbsent, std::move(request), {}, kPeerCallNs);
  FF_CO_TRY(const wire::AbsentReply reply, co_await std::move(calling));
  std::vector<ChunkId> forgotten;
  for (const wire::Chunk& chunk : reply.chunks()) forgotten.push_back(from_wire(chunk));
  co_return forgotten;
}

Task<Result<std::vector<ChunkId>>> Replica::absent(uint64_t version, std::vector<ChunkId> ids) {
  FF_CO_TRY(take_part(version));
  std::vector<ChunkId> missing;
  for (const ChunkId id : ids) {
    FF_CO_TRY(const chunk::ChunkState state, store_.state(id_, id));
    if (state.committed.version == 0 && !state.pending) missing.push_back(id);
  }
  co_return missing;
}

}  // namespace ff::chain
