// replica_compare.cc: whether the target after this one has the same chunks. Nothing brings that
// about but a mistake of ours, or of a disk that has lost what it had acknowledged: then the other
// one goes, and is copied to anew.
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

// One of the two may have forgotten a tombstone already.
chunk::VersionState seen(const ChunkState& state) {
  return state.committed.removed ? chunk::VersionState() : state.committed;
}

}  // namespace

void Replica::compare_soon() { begin_once(comparing_, compare_all()); }

Task<Result<void>> Replica::compare_all() {
  const uint64_t version = routed()->version;
  for (ChunkId from;;) {
    FF_CO_TRY(const Part part, take_part(version));
    if (!part.serves || part.successor == nullptr || !part.successor_serves) break;
    FF_CO_TRY(const auto page, store_.list(id_, from, kChunkPage));
    const bool more = page.size() >= kChunkPage;
    const ChunkId end = more ? page.back().id : ChunkId{UINT64_MAX, UINT64_MAX};
    auto asking = ask_what_differs(version, *part.successor, page, {from, end});
    FF_CO_TRY(const auto differ, co_await std::move(asking));
    // Updates may be on their way: none is while a chunk is locked.
    for (const ChunkId id : differ) {
      auto comparing = compare_one(version, id);
      FF_CO_TRY(co_await std::move(comparing));
    }
    if (!more) break;
    from = chunk::next(end);
  }
  co_return Result<void>();
}

Task<Result<void>> Replica::compare_one(uint64_t version, ChunkId id) {
  auto locking = locks_.take(id);
  FF_CO_TRY(const auto hold, co_await std::move(locking));
  FF_CO_TRY(const Part part, take_part(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (part.successor == nullptr || state.pending) co_return Result<void>();
  std::vector<ChunkInfo> one;
  if (state.committed.version > 0) one.push_back({.id = id, .state = state});
  auto asking = ask_what_differs(version, *part.successor, std::move(one), {id, id}, true);
  FF_CO_TRY(const auto differ, co_await std::move(asking));
  if (!differ.empty()) {
    log_error("the next target of the chain has another chunk, and is to be copied to anew",
              {{"target", id_}, {"chunk", to_string(id)}});
  }
  co_return Result<void>();
}

Task<Result<std::vector<ChunkId>>> Replica::ask_what_differs(uint64_t version, cluster::Target who,
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

Result<std::vector<ChunkId>> Replica::differing(uint64_t version, std::vector<ChunkInfo> theirs,
                                                Range range, bool settled) {
  FF_TRY(take_part(version));
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
  for (const auto& [id, image] : expected) differ.push_back(id);
  if (settled && !differ.empty()) {
    counters_.differing.add();
    (void)condemn(fail(Errc::corrupt, "chunk {} is not what the target before has",
                       to_string(differ.front())));
  }
  return differ;
}

}  // namespace ff::chain
