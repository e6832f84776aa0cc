// replica_repair.cc: chunks that are not what was stored any more. Whoever finds one, by a read, a
// copy or a scrub, has the head write it anew, from a replica that still has it: an ordinary update
// with a version of its own.
#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "chain/read_call.h"
#include "chain/replica.h"
#include "chain/wire.h"
#include "simd/crc32c.h"

namespace ff::chain {

using chunk::ChunkId;
using chunk::ChunkState;

namespace {

constexpr size_t kRepairsMax = 64;  // at once; what is left will be found again
constexpr int kAttempts = 10;
constexpr int64_t kRepairNs = 30 * kSecond;
constexpr int64_t kReadNs = 5 * kSecond;
constexpr int64_t kAgainFirstNs = 50 * kMillisecond;
constexpr int64_t kAgainLastNs = 2 * kSecond;

}  // namespace

void Replica::damaged(ChunkId id) {
  if (repairing_.size() >= kRepairsMax || !repairing_.insert(id).second) return;
  log_warning("a chunk is damaged", {{"target", id_}, {"chunk", to_string(id)}});
  gate_.spawn(have_repaired(id));
}

Task<void> Replica::have_repaired(ChunkId id) {
  Backoff backoff(context_.rng, kAgainFirstNs, kAgainLastNs);
  Result<void> repaired = stale("serves no longer");
  for (int attempt = 0; attempt < kAttempts && ready_; attempt++) {
    auto asking = ask_for_repair(id);
    repaired = co_await std::move(asking);
    if (repaired || repaired.error().code == Errc::corrupt) break;
    auto waiting = wait_for_change(backoff.pause_ns());
    const auto waited = co_await std::move(waiting);
    if (!waited) break;
  }
  repairing_.erase(id);
  if (repaired) {
    counters_.repaired.add();
    log_info("a damaged chunk is repaired", {{"target", id_}, {"chunk", to_string(id)}});
    co_return;
  }
  log_error("a damaged chunk is not repaired",
            {{"target", id_}, {"chunk", to_string(id)}, {"cause", repaired.error().message}});
}

Task<Result<void>> Replica::ask_for_repair(ChunkId id) {
  const uint64_t version = routed()->version;
  FF_CO_TRY(const Part part, take_part(version));
  if (part.head) {
    auto repairing = repair(version, id);
    co_return co_await std::move(repairing);
  }
  const cluster::Target head = routed()->targets.front();
  wire::RepairRequest request;
  *request.mutable_place() = place_of(head.id, version);
  *request.mutable_chunk() = to_wire(id);
  auto calling = call(head.node, kRepair, std::move(request), {}, kRepairNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// As the head. Nothing else changes the chunk meanwhile: all updates come through here.
Task<Result<void>> Replica::repair(uint64_t version, ChunkId id) {
  FF_CO_TRY(be_head(version));
  auto settling = settle(id);
  FF_CO_TRY(co_await std::move(settling));
  auto locking = locks_.take(id);
  FF_CO_TRY(auto hold, co_await std::move(locking));
  FF_CO_TRY(be_head(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (state.pending) co_return stale("has a version on its way");
  if (state.committed.version == 0 || state.committed.removed) co_return Result<void>();
  Memory::Bytes bytes = context_.memory.take(state.committed.length);
  auto finding = find_sound(version, id, state.committed, bytes.span());
  FF_CO_TRY(co_await std::move(finding));
  FF_CO_TRY(be_head(version));
  const chunk::Update update{.target = id_,
                             .id = id,
                             .version = state.committed.version + 1,
                             .writer = {.client = context_.rng.next(), .sequence = 1},
                             .change = chunk::Change::replace,
                             .data = bytes.span(),
                             .chunk_size = chunk::kChunkMax};
  auto ending = end_of(flight_with(std::move(hold), update, std::move(bytes)));
  FF_CO_TRY(co_await std::move(ending));
  co_return Result<void>();
}

// The chunk's committed version, from whichever target still has it.
Task<Result<void>> Replica::find_sound(uint64_t version, ChunkId id, chunk::VersionState wanted,
                                       ByteSpan into) {
  auto reading = store_.read({.target = id_, .id = id}, into);
  const auto own = co_await std::move(reading);
  if (own) co_return Result<void>();
  if (own.error().code != Errc::corrupt) co_return store_failed(own.error());
  const std::vector<cluster::Target> targets = routed()->targets;
  for (const cluster::Target& target : targets) {
    if (target.id == id_ || target.state != cluster::State::serving) continue;
    wire::ReadRequest request;
    *request.mutable_place() = place_of(target.id, version);
    wire::ReadItem& item = *request.add_items();
    *item.mutable_chunk() = to_wire(id);
    item.set_distrusted(true);
    const std::vector<ByteSpan> sinks{into};
    auto calling = read_call(context_.loop, calls_, chain_, target.node, std::move(request), sinks,
                             context_.loop.now_ns() + kReadNs);
    const auto reply = co_await std::move(calling);
    if (!reply && reply.error().code == Errc::interrupted) co_return reply.error();
    if (!reply || reply->items_size() != 1 || reply->items(0).has_error()) continue;
    const bool same = from_wire(reply->items(0).image()) == wanted;
    if (same && simd::crc32c(into) == wanted.checksum) co_return Result<void>();
  }
  co_return fail(Errc::corrupt, "chunk {} of chain {}: no target that serves has its bytes",
                 to_string(id), chain_);
}

}  // namespace ff::chain
