// replica_sync.cc: making durable what was acknowledged, and what a target does before it serves.
#include <utility>

#include "platform/base/log.h"
#include "storage/chain/replica.h"

namespace ff::chain {

namespace {

constexpr int64_t kReplicaSyncNs = 30 * kSecond;
constexpr size_t kLookedAtOnce = 1000;  // chunks, before others get their turn

}  // namespace

Task<Result<void>> Replica::pass_sync(uint64_t version, cluster::Target to) {
  wire::SyncRequest request;
  *request.mutable_place() = place_of(to.id, version);
  auto calling = call(to.node, kSync, std::move(request), {}, kReplicaSyncNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<uint64_t>> Replica::sync(uint64_t version) {
  FF_CO_TRY(const Part part, take_part(version));
  Result<void> passed;
  Cancel& cancel = *co_await current_cancel();
  Gate beside(context_.loop);
  if (part.successor != nullptr) {
    beside.spawn([](Task<Result<void>> passing, Result<void>& result, Cancel& with) -> Task<void> {
      result = co_await std::move(passing).under(with);
    }(pass_sync(version, *part.successor), passed, cancel));
  }
  auto syncing = store_.sync();
  const auto synced = co_await std::move(syncing);
  co_await beside.wait_empty();
  if (!synced) co_return store_failed(synced.error());
  FF_CO_TRY(std::move(passed));
  FF_CO_TRY(take_part(version));
  co_return told_verifier();
}

// Before a target serves again: what was pending when it last did is carried on, and clients are
// told when updates may be gone.
Task<void> Replica::return_to_service(uint64_t spell) {
  auto preparing = prepare_to_serve();
  const auto prepared = co_await std::move(preparing);
  if (spell != spell_) co_return;
  if (!prepared) {
    log_warning("a target cannot serve", {{"target", id_}, {"error", prepared.error().message}});
    co_return;
  }
  ready_ = true;
  look();
  repair_soon();
}

Task<Result<void>> Replica::prepare_to_serve() {
  auto waiting = steps_.wait_before(seen_version_);
  FF_CO_TRY(co_await std::move(waiting));
  if (lossy_) {
    const uint64_t verifier = context_.rng.next();
    auto setting = store_.set_target_state(id_, verifier);
    const auto set = co_await std::move(setting);
    if (!set) co_return store_failed(set.error());
    verifier_ = verifier;
    lossy_ = false;
  }
  auto settling = settle_all();
  co_return co_await std::move(settling);
}

Task<Result<void>> Replica::settle_all() {
  chunk::ChunkId from;
  for (;;) {
    FF_CO_TRY(const auto page, store_.list(id_, from, kLookedAtOnce));
    for (const chunk::ChunkInfo& info : page) {
      if (!info.state.pending) continue;
      auto settling = settle(info.id);
      FF_CO_TRY(co_await std::move(settling));
    }
    if (page.size() < kLookedAtOnce) co_return Result<void>();
    from = chunk::next(page.back().id);
    YieldWait others(context_.loop);
    FF_CO_TRY(co_await others);
  }
}

// What it knows of channels is of an earlier life: the copy brings what counts.
Task<void> Replica::begin_copy_to(uint64_t spell) {
  auto waiting = steps_.wait_before(seen_version_);
  const auto waited = co_await std::move(waiting);
  if (!waited) co_return;
  auto forgetting = store_.forget_results(id_);
  const auto forgotten = co_await std::move(forgetting);
  if (!forgotten) {
    (void)store_failed(forgotten.error());
    co_return;
  }
  if (spell == spell_) ready_ = true;
}

}  // namespace ff::chain
