// replica_sync.cc: syncs, and the preparation of a target before it serves.
#include <utility>

#include "platform/base/log.h"
#include "storage/chain/replica.h"

namespace ff::chain {

namespace {

constexpr int64_t kReplicaSyncNs = 30 * kSecond;
constexpr size_t kResolvePageChunks = 1000;  // chunks per page, before other tasks run

}  // namespace

Task<Result<void>> Replica::sync_successor(uint64_t version, cluster::Target to) {
  wire::SyncRequest request;
  *request.mutable_place() = place_of(to.id, version);
  auto calling = call(to.node, kSync, std::move(request), {}, kReplicaSyncNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<uint64_t>> Replica::sync(uint64_t version) {
  FF_CO_TRY(const ChainRole role, check_role(version));
  Result<void> passed;
  CancellationToken& cancel = *co_await current_cancellation();
  Gate beside(context_.loop);
  if (role.successor != nullptr) {
    beside.spawn([](Task<Result<void>> passing, Result<void>& result,
                    CancellationToken& with) -> Task<void> {
      result = co_await std::move(passing).with_cancellation(with);
    }(sync_successor(version, *role.successor), passed, cancel));
  }
  const auto synced = co_await store_.sync();
  co_await beside.wait_empty();
  if (!synced) co_return store_failed(synced.error());
  FF_CO_TRY(std::move(passed));
  FF_CO_TRY(check_role(version));
  co_return client_verifier();
}

// Before a target serves again it resolves all pending versions, and changes the verifier if
// updates may be lost.
Task<void> Replica::return_to_service(uint64_t epoch) {
  const auto prepared = co_await prepare_to_serve();
  if (epoch != epoch_) co_return;
  if (!prepared) {
    log_warning("a target cannot serve", {{"target", id_}, {"error", prepared.error().message}});
    co_return;
  }
  ready_ = true;
  on_routing_change();
  start_repairs();
}

Task<Result<void>> Replica::prepare_to_serve() {
  FF_CO_TRY(co_await operations_.wait_before(seen_version_));
  if (power_lost_) {
    const uint64_t verifier = context_.rng.next();
    const auto set = co_await store_.set_target_state(id_, verifier);
    if (!set) co_return store_failed(set.error());
    verifier_ = verifier;
    power_lost_ = false;
  }
  co_return co_await resolve_all_pending();
}

Task<Result<void>> Replica::resolve_all_pending() {
  chunk::ChunkId from;
  for (;;) {
    FF_CO_TRY(const auto page, store_.list(id_, from, kResolvePageChunks));
    for (const chunk::ChunkInfo& info : page) {
      if (!info.state.pending) continue;
      FF_CO_TRY(co_await resolve_pending(info.id));
    }
    if (page.size() < kResolvePageChunks) co_return Result<void>();
    from = chunk::next(page.back().id);
    YieldWait others(context_.loop);
    FF_CO_TRY(co_await others);
  }
}

// Channel results are from an earlier membership: the copy brings the current ones.
Task<void> Replica::prepare_to_sync(uint64_t epoch) {
  const auto waited = co_await operations_.wait_before(seen_version_);
  if (!waited) co_return;
  const auto forgotten = co_await store_.clear_channel_results(id_);
  if (!forgotten) {
    (void)store_failed(forgotten.error());
    co_return;
  }
  if (epoch == epoch_) ready_ = true;
}

}  // namespace ff::chain
