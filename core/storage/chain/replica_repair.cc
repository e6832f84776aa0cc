// replica_repair.cc: repair of corrupt chunks. A target that finds one, by a read, a copy or a
// scrub, asks the head to rewrite it from a replica that has it intact: an ordinary update with a
// new version.
#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/read_call.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;
using chunk::ChunkState;

namespace {

constexpr size_t kRepairsAtOnce = 8;  // chunks
constexpr int64_t kRepairNs = 30 * kSecond;
constexpr int64_t kRepairReadNs = 5 * kSecond;
constexpr int64_t kRepairRetryFirstNs = 50 * kMillisecond;
constexpr int64_t kRepairRetryLastNs = 2 * kSecond;
// Retry interval while no serving target has the data, unless the chain changes.
constexpr int64_t kUnrepairableRetryNs = 600 * kSecond;

}  // namespace

// Progress of one pass over the damaged chunks.
struct Replica::RepairProgress {
  uint64_t repaired = 0;
  uint64_t unrepairable = 0;  // no replica has the data
  uint64_t failed = 0;
  std::string cause;  // of one chunk that is not repaired
};

void Replica::report_damaged(ChunkId id) {
  if (store_.is_damaged(id_, id)) return;
  log_warning("a chunk is damaged", {{"target", id_}, {"chunk", to_string(id)}});
  store_.mark_damaged(id_, id);
  start_repairs();
}

void Replica::start_repairs() {
  if (store_.list_damaged(id_, {}, 1).empty()) return;
  changed_.set();
  changed_.reset();
  if (std::exchange(repairing_, true)) return;
  gate_.spawn(run_repairs());
}

// Runs while any damaged chunk is left, also while the target does not serve. While the target is
// syncing, the copy brings its damaged chunks (list()).
Task<void> Replica::run_repairs() {
  Backoff backoff(context_.rng, kRepairRetryFirstNs, kRepairRetryLastNs);
  uint64_t told = 0;  // number of unrepairable chunks last logged
  while (!store_.list_damaged(id_, {}, 1).empty() && store_.health()) {
    RepairProgress progress;
    if (ready_ && seen_state_ == cluster::TargetState::serving) {
      co_await repair_all(progress);
    }
    if (progress.repaired > 0) backoff.reset();
    if (progress.unrepairable > 0 &&
        progress.unrepairable != std::exchange(told, progress.unrepairable)) {
      log_error("cannot repair damaged chunks",
                {{"target", id_}, {"chunks", progress.unrepairable}, {"cause", progress.cause}});
    }
    const bool unrepairable =
        progress.unrepairable > 0 && progress.failed == 0 && progress.repaired == 0;
    auto waiting = wait_for_change(unrepairable ? kUnrepairableRetryNs : backoff.next_delay_ns());
    const auto waited = co_await std::move(waiting);
    if (!waited) break;
  }
  repairing_ = false;
}

Task<void> Replica::repair_all(RepairProgress& progress) {
  CancellationToken& cancel = *co_await current_cancellation();
  Semaphore window(context_.loop, kRepairsAtOnce);
  Gate beside(context_.loop);
  ChunkId from;
  for (bool more = true; more;) {
    const auto page = store_.list_damaged(id_, from, kChunkPage);
    more = page.size() >= kChunkPage;
    for (const ChunkId id : page) {
      from = chunk::next(id);
      auto slot = co_await window.acquire(1);
      more &= slot.ok();
      if (!slot) break;
      beside.spawn(
          [](Task<void> repairing, Semaphore::Permit, CancellationToken& with) -> Task<void> {
            co_await std::move(repairing).with_cancellation(with);
          }(repair_one(id, progress), std::move(*slot), cancel));
    }
  }
  co_await beside.wait_empty();
}

Task<void> Replica::repair_one(ChunkId id, RepairProgress& progress) {
  const auto sound = co_await store_.verify(id_, id);
  if (sound && *sound) {
    progress.repaired++;
    co_return;
  }
  const auto repaired = co_await request_repair(id);
  if (repaired) {
    progress.repaired++;
    metrics_.repaired.add();
    log_info("repaired a damaged chunk", {{"target", id_}, {"chunk", to_string(id)}});
    co_return;
  }
  const bool unrepairable = repaired.error().code == Errc::corrupt;
  (unrepairable ? progress.unrepairable : progress.failed)++;
  if (unrepairable) progress.cause = repaired.error().message;
}

Task<Result<void>> Replica::request_repair(ChunkId id) {
  const uint64_t version = routed_chain()->version;
  FF_CO_TRY(const ChainRole role, check_role(version));
  if (role.is_head) {
    co_return co_await repair(version, id);
  }
  const cluster::Target head = routed_chain()->targets.front();
  wire::RepairRequest request;
  *request.mutable_place() = place_of(head.id, version);
  *request.mutable_chunk() = to_wire(id);
  auto calling = call(head.node, kRepair, std::move(request), {}, kRepairNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// Runs at the head. All updates pass the head, so the chunk lock excludes other changes.
Task<Result<void>> Replica::repair(uint64_t version, ChunkId id) {
  FF_CO_TRY(check_head(version));
  FF_CO_TRY(co_await resolve_pending(id));
  FF_CO_TRY(auto hold, co_await locks_.lock(id));
  FF_CO_TRY(check_head(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (state.pending) co_return stale("has a pending version of the chunk");
  if (state.committed.version == 0 || state.committed.removed) co_return Result<void>();
  BufferPool::Buffer bytes = context_.buffers.allocate(state.committed.length);
  FF_CO_TRY(co_await read_sound_replica(version, id, state.committed, bytes.span()));
  FF_CO_TRY(check_head(version));
  const chunk::Update update{.target = id_,
                             .id = id,
                             .version = state.committed.version + 1,
                             .request_id = {.client = context_.rng.next(), .sequence = 1},
                             .type = chunk::UpdateType::replace,
                             .data = bytes.span(),
                             .chunk_size = chunk::kChunkMax};
  FF_CO_TRY(co_await run_to_end(begin_update(std::move(hold), update, std::move(bytes))));
  co_return Result<void>();
}

// Reads the committed version of the chunk from any replica that has it intact.
Task<Result<void>> Replica::read_sound_replica(uint64_t version, ChunkId id,
                                               chunk::VersionState wanted, ByteSpan into) {
  auto reading = store_.read({.target = id_, .id = id}, into);
  const auto own = co_await std::move(reading);
  if (own) co_return Result<void>();
  if (own.error().code != Errc::corrupt) co_return store_failed(own.error());
  const std::vector<cluster::Target> targets = routed_chain()->targets;
  Result<void> unsure;
  for (const cluster::Target& target : targets) {
    if (target.id == id_ || target.state != cluster::TargetState::serving) continue;
    wire::ReadRequest request;
    *request.mutable_place() = place_of(target.id, version);
    wire::ReadItem& item = *request.add_items();
    *item.mutable_chunk() = to_wire(id);
    item.set_distrusted(true);
    const std::vector<ByteSpan> sinks{into};
    const auto reply =
        co_await read_call(context_.loop, calls_, chain_, target.node, std::move(request), sinks,
                           context_.loop.now_ns() + kRepairReadNs);
    if (!reply && reply.error().code == Errc::interrupted) co_return reply.error();
    if (!reply || reply->items_size() != 1) {
      unsure = stale("gets no response from another replica");
      continue;
    }
    if (reply->items(0).has_error()) {
      const Error error = rpc::from_wire(reply->items(0).error());
      if (error.code != Errc::corrupt) unsure = stale(error.message);
      continue;
    }
    const bool same = from_wire(reply->items(0).image()) == wanted;
    if (same && simd::crc32c(into) == wanted.checksum) co_return Result<void>();
  }
  FF_CO_TRY(std::move(unsure));
  co_return fail(Errc::corrupt, "chunk {} of chain {}: no serving target has it intact",
                 to_string(id), chain_);
}

}  // namespace ff::chain
