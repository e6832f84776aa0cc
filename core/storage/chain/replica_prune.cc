// replica_prune.cc: prunes tombstones, head first. Each other target asks its predecessor before it
// prunes. So a target without a tombstone has no predecessor with one, and a chunk that is created
// again as version 1 can meet only tombstones that are equally old (decisions.h, erase_tombstone).
#include <algorithm>
#include <utility>

#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;

namespace {

constexpr size_t kPruneAtOnce = 1000;  // chunks

}  // namespace

void Replica::start_prune(int64_t now_ns) { start_once(pruning_, prune(now_ns)); }

Task<Result<void>> Replica::prune(int64_t now_ns) {
  const uint64_t version = routed_chain()->version;
  FF_CO_TRY(const ChainRole role, check_role(version));
  if (!role.serving) co_return Result<void>();
  std::vector<ChunkId> ids = store_.expired_tombstones(id_, now_ns, kPruneAtOnce);
  std::erase_if(ids, [this](ChunkId id) {
    return is_missing(id);
  });  // these tombstones distinguish removed chunks from missing ones
  if (ids.empty()) co_return Result<void>();
  if (!role.is_head) {
    FF_CO_TRY(ids, co_await pruned_by_predecessor(std::move(ids), version));
  }
  std::vector<ChunkLocks::Lock> holds;
  for (const ChunkId id : ids) {
    FF_CO_TRY(auto hold, co_await locks_.lock(id));
    holds.push_back(std::move(hold));
  }
  FF_CO_TRY(check_role(version));
  const auto pruned = co_await store_.prune_tombstones(id_, std::move(ids));
  if (!pruned) co_return store_failed(pruned.error());
  co_return Result<void>();
}

// Which of `ids` the predecessor has pruned.
Task<Result<std::vector<ChunkId>>> Replica::pruned_by_predecessor(std::vector<ChunkId> ids,
                                                                  uint64_t version) {
  const auto& targets = routed_chain()->targets;
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

Task<Result<std::vector<ChunkId>>> Replica::absent_chunks(uint64_t version,
                                                          std::vector<ChunkId> ids) {
  FF_CO_TRY(check_role(version));
  std::vector<ChunkId> missing;
  for (const ChunkId id : ids) {
    FF_CO_TRY(const chunk::ChunkState state, store_.state(id_, id));
    if (state.committed.version == 0 && !state.pending) missing.push_back(id);
  }
  co_return missing;
}

}  // namespace ff::chain
