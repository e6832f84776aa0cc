// replica_compare.cc: compares the chunks of the successor with those of this target. They differ
// only after a bug, or after a disk has lost acknowledged writes: then the successor fails and is
// copied again.
#include <algorithm>
#include <map>
#include <utility>

#include "platform/base/log.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;
using chunk::ChunkInfo;
using chunk::ChunkState;

namespace {

// A tombstone counts as absent: one of the two targets may have pruned it.
chunk::VersionState seen(const ChunkState& state) {
  return state.committed.removed ? chunk::VersionState() : state.committed;
}

}  // namespace

void Replica::start_compare() { start_once(comparing_, compare_all()); }

Task<Result<void>> Replica::compare_all() {
  const uint64_t version = routed_chain()->version;
  for (ChunkId from;;) {
    FF_CO_TRY(const ChainRole role, check_role(version));
    if (!role.serving || role.successor == nullptr || !role.successor_serving) break;
    FF_CO_TRY(const auto page, store_.list(id_, from, kChunkPage));
    const bool more = page.size() >= kChunkPage;
    const ChunkId end = more ? page.back().id : ChunkId{UINT64_MAX, UINT64_MAX};
    auto asking = request_differences(version, *role.successor, page, {from, end});
    FF_CO_TRY(const auto differ, co_await std::move(asking));
    // Updates may be in flight; the chunk lock excludes them.
    for (const ChunkId id : differ) {
      FF_CO_TRY(co_await compare_one(version, id));
    }
    if (!more) break;
    from = chunk::next(end);
  }
  co_return Result<void>();
}

Task<Result<void>> Replica::compare_one(uint64_t version, ChunkId id) {
  FF_CO_TRY(const auto hold, co_await locks_.lock(id));
  FF_CO_TRY(const ChainRole role, check_role(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (role.successor == nullptr || state.pending) co_return Result<void>();
  std::vector<ChunkInfo> one;
  if (state.committed.version > 0) one.push_back({.id = id, .state = state});
  auto asking = request_differences(version, *role.successor, std::move(one), {id, id}, true);
  FF_CO_TRY(const auto differ, co_await std::move(asking));
  if (!differ.empty()) {
    log_error("the successor has a different chunk and must be copied again",
              {{"target", id_}, {"chunk", to_string(id)}});
  }
  co_return Result<void>();
}

Task<Result<std::vector<ChunkId>>> Replica::request_differences(uint64_t version,
                                                                cluster::Target who,
                                                                std::vector<ChunkInfo> chunks,
                                                                Range range, bool settled) {
  wire::CompareRequest request;
  *request.mutable_place() = place_of(who.id, version);
  *request.mutable_from() = to_wire(range.first);
  *request.mutable_to() = to_wire(range.last);
  request.set_settled(settled);
  for (const ChunkInfo& info : chunks) {
    const bool looked_at = !info.state.pending && !info.state.committed.removed;
    if (looked_at) *request.add_chunks() = to_wire(info);
  }
  auto calling = call(who.node, kCompare, std::move(request), {}, kPeerCallNs);
  FF_CO_TRY(const wire::CompareReply reply, co_await std::move(calling));
  std::vector<ChunkId> differ;
  for (const wire::Chunk& chunk : reply.chunks()) differ.push_back(from_wire(chunk));
  co_return differ;
}

Result<std::vector<ChunkId>> Replica::differing_chunks(uint64_t version,
                                                       std::vector<ChunkInfo> theirs, Range range,
                                                       bool settled) {
  FF_TRY(check_role(version));
  std::map<ChunkId, chunk::VersionState> expected;
  for (const ChunkInfo& info : theirs) expected[info.id] = info.state.committed;
  std::vector<ChunkId> differ;
  for (ChunkId from = range.first;;) {
    FF_TRY(const auto page, store_.list(id_, from, kChunkPage));
    for (const ChunkInfo& info : page) {
      if (info.id > range.last) break;
      const auto found = expected.find(info.id);
      const auto wanted = found == expected.end() ? chunk::VersionState() : found->second;
      if (found != expected.end()) expected.erase(found);
      if (!info.state.pending && seen(info.state) != wanted) differ.push_back(info.id);
    }
    if (page.size() < kChunkPage || page.back().id >= range.last) break;
    from = chunk::next(page.back().id);
  }
  for (const auto& [id, state] : expected) differ.push_back(id);
  if (settled && !differ.empty()) {
    metrics_.differing.add();
    (void)fail_target(fail(Errc::corrupt, "chunk {} differs from that of the predecessor",
                           to_string(differ.front())));
  }
  return differ;
}

}  // namespace ff::chain
