// replica_update.cc: replication of an update from arrival to commit.
#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/check.h"
#include "platform/base/log.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"
#include "storage/chunk/layout.h"

namespace ff::chain {

using chunk::ChunkState;
using chunk::UpdateType;

namespace {

// Timeout of a forward call: longer than a failed target stays in the chain.
constexpr int64_t kForwardNs = 15 * kSecond;
// Backoff between attempts while no change of the chain is known.
constexpr int64_t kUpdateRetryFirstNs = 5 * kMillisecond;
constexpr int64_t kUpdateRetryLastNs = 500 * kMillisecond;
constexpr int64_t kLeaseLookNs = 50 * kMillisecond;

// The successor has not stored the update and never will.
bool is_refusal(const Error& error) {
  return error.code == Errc::disk_full || error.code == Errc::refused || error.code == Errc::usage;
}

// Whether the result does not depend on the previous content.
bool is_whole(const chunk::Update& update) {
  return update.type == UpdateType::replace || update.type == UpdateType::remove;
}

// Whether the update overwrites the whole chunk. `bytes`: size of its data.
bool covers_all(const chunk::Update& update, uint64_t bytes) {
  const bool clears = update.type == UpdateType::punch_hole;
  if (!clears && update.type != UpdateType::write) return is_whole(update);
  return update.offset == 0 && (clears ? update.length : bytes) >= update.chunk_size;
}

// For a chunk that is known to be missing: afterwards it is a hole, or holds the written data.
std::optional<chunk::Update> as_whole_update(chunk::Update update) {
  if (update.type == UpdateType::punch_hole) update.type = UpdateType::remove;
  return update;
}

}  // namespace

// An update on its way down the chain. Holds the lock of the chunk.
struct Replica::InflightUpdate {
  enum class Origin : uint8_t {
    resumed,      // continues a pending version of the store
    received,     // starts with a received update, the next version
    replacement,  // a whole chunk received by a syncing target
  };
  InflightUpdate(Loop& loop, ChunkLocks::Lock lock, chunk::Update what, uint64_t of_epoch,
                 Origin how)
      : hold(std::move(lock)), update(std::move(what)), epoch(of_epoch), origin(how), ended(loop) {}

  std::optional<ChunkLocks::Lock> hold;
  chunk::Update update;
  const uint64_t epoch;
  const Origin origin;
  BufferPool::Buffer bytes;    // data of the update
  chunk::VersionState state;   // the chunk after the update
  uint64_t chain_version = 0;  // replacement: chain version of the request
  BufferPool::Buffer whole;    // the whole new version, when read
  bool has_whole = false;
  bool checked = false;  // the predecessor, then this target, has verified its own copy
  Result<UpdateOutcome> outcome = UpdateOutcome{};
  Event ended;
};

std::optional<chunk::ChannelResult> Replica::channel_result(
    const chunk::RequestId& request_id) const {
  auto result = store_.channel_result(id_, request_id.client, request_id.channel);
  return result ? std::move(*result) : std::nullopt;
}

// Continues a pending version whose original update is no longer available.
std::shared_ptr<Replica::InflightUpdate> Replica::resume_pending(ChunkLocks::Lock hold,
                                                                 const chunk::PendingState& pending,
                                                                 chunk::ChunkId id) {
  const chunk::Update update{
      .target = id_, .id = id, .version = pending.state.version, .request_id = pending.request_id};
  auto inflight = std::make_shared<InflightUpdate>(context_.loop, std::move(hold), update, epoch_,
                                                   InflightUpdate::Origin::resumed);
  inflight->state = pending.state;
  return inflight;
}

// Starts a new update, the next version.
std::shared_ptr<Replica::InflightUpdate> Replica::begin_update(ChunkLocks::Lock hold,
                                                               const chunk::Update& update,
                                                               BufferPool::Buffer bytes) {
  auto inflight = std::make_shared<InflightUpdate>(context_.loop, std::move(hold), update, epoch_,
                                                   InflightUpdate::Origin::received);
  inflight->bytes = std::move(bytes);
  return inflight;
}

Task<Result<void>> Replica::pull_data(InflightUpdate& inflight, uint64_t bytes, PullData pull) {
  if (bytes == 0) co_return Result<void>();
  inflight.bytes = context_.buffers.allocate(bytes);
  inflight.update.data = inflight.bytes.span();
  co_return co_await pull(inflight.bytes.span());
}

// For a punch_hole that became a write: allocates its zeros.
void Replica::fill_zeros(InflightUpdate& inflight) {
  if (inflight.update.type != UpdateType::write) return;
  inflight.bytes = context_.buffers.allocate(inflight.update.length);
  std::ranges::fill(inflight.bytes.span(), std::byte{0});
  inflight.update.data = inflight.bytes.span();
}

// An update that changes nothing succeeds, and its result is recorded: when it is sent again, it
// must not change what another client has written since. Retries go to this head only, so other
// targets need no record.
Task<Result<UpdateOutcome>> Replica::record_unchanged(chunk::Update update, ChunkState state) {
  const OperationTracker::Operation operation(operations_, seen_version_);
  std::vector<chunk::ChannelInfo> known(1);
  known[0] = {.client = update.request_id.client,
              .channel = update.request_id.channel,
              .result = {.sequence = update.request_id.sequence,
                         .id = update.id,
                         .state = state.committed,
                         .committed = true,
                         .used_ns = context_.loop.clock().wall_ns()}};
  const auto kept = co_await store_.install_channel_results(id_, std::move(known));
  if (!kept) co_return store_failed(kept.error());
  co_return UpdateOutcome{state.committed, state.chain_version};
}

// Runs the update independently of the caller and waits for its outcome.
Task<Result<UpdateOutcome>> Replica::run_to_end(std::shared_ptr<InflightUpdate> inflight) {
  gate_.spawn(run_update(inflight));
  FF_CO_TRY(co_await inflight->ended.wait());
  co_return inflight->outcome;
}

Task<void> Replica::run_update(std::shared_ptr<InflightUpdate> inflight) {
  auto outcome = co_await replicate(*inflight);
  if (!inflight->ended.is_set()) inflight->outcome = std::move(outcome);
  inflight->hold.reset();
  inflight->ended.set();
}

Task<Result<UpdateOutcome>> Replica::write(uint64_t version, chunk::Update update, uint64_t bytes,
                                           PullData pull) {
  for (;;) {
    FF_CO_TRY(check_head(version));
    FF_CO_TRY(auto hold, co_await locks_.lock(update.id));
    FF_CO_TRY(check_head(version));
    FF_CO_TRY(const ChunkState state, store_.state(id_, update.id));
    const UpdateDecision decision =
        decide_write(state, channel_result(update.request_id), update.request_id);
    switch (decision.action) {
      case UpdateAction::already_done: co_return UpdateOutcome{decision.state, state.chain_version};
      case UpdateAction::reject:
        co_return fail(Errc::refused, "target {}: {}", id_, decision.reason);
      case UpdateAction::resume: {
        co_return co_await run_to_end(resume_pending(std::move(hold), *state.pending, update.id));
      }
      case UpdateAction::resolve_pending: {
        const auto settled =
            co_await run_to_end(resume_pending(std::move(hold), *state.pending, update.id));
        if (!settled && !is_refusal(settled.error())) co_return settled.error();
        continue;
      }
      case UpdateAction::erase_tombstone:
      case UpdateAction::store: break;
    }
    const bool lost = state.committed.version == 0 && is_missing(update.id);
    if (lost && !covers_all(update, bytes)) {
      co_return missing_error(update.id);  // the rest of the chunk would read as zeros
    }
    const bool clears = update.type == UpdateType::punch_hole;
    auto wanted = lost ? as_whole_update(update) : effective_update(update, state.committed);
    if (!wanted) {
      co_return co_await record_unchanged(update, state);
    }
    wanted->target = id_;
    wanted->version = state.committed.version + 1;
    auto inflight = begin_update(std::move(hold), *wanted, {});
    if (clears) {
      fill_zeros(*inflight);
    } else {
      FF_CO_TRY(co_await pull_data(*inflight, bytes, pull));
    }
    FF_CO_TRY(check_head(version));
    if (inflight->epoch != epoch_) co_return stale("has left the chain");
    co_return co_await run_to_end(inflight);
  }
}

Result<void> Replica::check_head(uint64_t version) {
  FF_TRY(const ChainRole role, check_role(version));
  if (role.is_head) return {};
  return stale("is not the head");
}

Task<Result<UpdateOutcome>> Replica::forward(uint64_t version, Forward forward, PullData pull) {
  chunk::Update& update = forward.update;
  update.target = id_;
  FF_CO_TRY(check_role(version));
  FF_CO_TRY(auto hold, co_await locks_.lock(update.id));
  FF_CO_TRY(const ChainRole role, check_role(version));
  if (role.is_head) co_return stale("is the head and accepts no forwarded updates");
  FF_CO_TRY(const ChunkState state, store_.state(id_, update.id));
  if (role.serving) {
    const UpdateDecision decision =
        decide_forward(state, channel_result(update.request_id), update.request_id, update.version);
    if (decision.action == UpdateAction::already_done)
      co_return UpdateOutcome{decision.state, state.chain_version};
    if (decision.action == UpdateAction::reject) {
      log_error("rejected an impossible update", {{"target", id_}, {"why", decision.reason}});
      co_return fail(Errc::refused, "target {}: {}", id_, decision.reason);
    }
    if (decision.action == UpdateAction::resume) {
      co_return co_await run_to_end(resume_pending(std::move(hold), *state.pending, update.id));
    }
    if (decision.action == UpdateAction::erase_tombstone) {
      const OperationTracker::Operation operation(operations_, seen_version_);
      const auto forgotten = co_await store_.erase(id_, update.id);
      if (!forgotten) co_return store_failed(forgotten.error());
    }
  } else {
    if (already_replaced(state, update.version, version))
      co_return UpdateOutcome{state.committed, version};
    if (!is_whole(update)) co_return stale("accepts whole chunks only, because it is syncing");
  }
  auto inflight = std::make_shared<InflightUpdate>(
      context_.loop, std::move(hold), update, epoch_,
      role.serving ? InflightUpdate::Origin::received : InflightUpdate::Origin::replacement);
  inflight->chain_version = version;
  inflight->checked = forward.checked;
  FF_CO_TRY(co_await pull_data(*inflight, forward.bytes, std::move(pull)));
  FF_CO_TRY(check_role(version));
  if (inflight->epoch != epoch_) co_return stale("has left the chain");
  co_return co_await run_to_end(inflight);
}

Task<Result<UpdateOutcome>> Replica::replicate(InflightUpdate& inflight) {
  if (inflight.origin == InflightUpdate::Origin::replacement) {
    co_return co_await store_replacement(inflight);
  }
  if (inflight.origin == InflightUpdate::Origin::received) {
    const auto last = tail_chain_version();
    FF_CO_TRY(co_await store_update(inflight, last));
    if (last) co_return UpdateOutcome{inflight.state, *last};
  }
  Backoff backoff(context_.rng, kUpdateRetryFirstNs, kUpdateRetryLastNs);
  for (;;) {
    on_routing_change();
    if (inflight.epoch != epoch_)
      co_return stale("no longer serves: the outcome of the update is open");
    if (!context_.member.may_write(id_, context_.loop.now_ns())) {
      FF_CO_TRY(co_await wait_for_change(kLeaseLookNs));
      continue;
    }
    const uint64_t version = routed_chain()->version;
    const ChainRole role = *role_of(*routed_chain(), id_);  // in this epoch the target serves
    if (role.successor == nullptr) {
      co_return co_await commit(inflight, version);
    }
    auto passed = co_await forward_to_successor(inflight, role, *role.successor, version);
    if (passed) {
      // All successors have committed: that is all the caller needs. Until this target has
      // committed too, it asks the tail (replica_read.cc) and holds the lock of the chunk.
      inflight.outcome = UpdateOutcome{inflight.state, passed->chain_version};
      inflight.ended.set();
      co_return commit_soon(inflight, passed->chain_version);
    }
    if (is_refusal(passed.error())) {
      co_return co_await drop_pending(inflight, std::move(passed).error());
    }
    if (passed.error().code == Errc::corrupt) {
      FF_CO_TRY(co_await check_own_copy(inflight, std::move(passed).error()));
      continue;
    }
    FF_CO_TRY(co_await wait_for_change(backoff.next_delay_ns()));
  }
}

// The chain version, if this target is the last of its chain under it: then updates commit when
// they are stored.
std::optional<uint64_t> Replica::tail_chain_version() {
  on_routing_change();
  const auto role = role_of(*routed_chain(), id_);
  const bool last = role && role->serving && role->successor == nullptr &&
                    context_.member.may_write(id_, context_.loop.now_ns());
  return last ? std::optional(routed_chain()->version) : std::nullopt;
}

// Handles an error of the store: the disk has failed, or the operation was cancelled. For the
// caller this target is unreachable.
Error Replica::store_failed(Error error) {
  if (!store_.health()) return fail_target(std::move(error));
  const bool given_up = error.code == Errc::interrupted || error.code == Errc::deadline;
  if (!given_up) error.code = Errc::unreachable;
  return error;
}

// Error handling of a syncing target. It must reject nothing: the update may be committed, and
// read, at a target that has left since. A syncing target without space fails.
Error Replica::copy_failed(Error error) {
  if (!store_.health()) return store_failed(std::move(error));
  if (error.code == Errc::disk_full) return fail_target(std::move(error));
  return error;
}

// The data of this target is wrong: it leaves the chain until it has been copied again.
Error Replica::fail_target(Error error) {
  context_.fail_target(id_, error);
  error.code = Errc::unreachable;
  return error;
}

Task<Result<void>> Replica::store_update(InflightUpdate& inflight,
                                         std::optional<uint64_t> commit_under) {
  if (inflight.epoch != epoch_) co_return stale("has left the chain");
  const OperationTracker::Operation operation(operations_, seen_version_);
  inflight.update.commit_chain_version = commit_under;
  auto stored = co_await store_.write(inflight.update);
  if (stored) {
    inflight.state = commit_under ? stored->committed : stored->pending->state;
    metrics_.updates.add();
    metrics_.update_bytes.add(inflight.update.data.size());
    co_return Result<void>();
  }
  Error error = std::move(stored).error();
  if (!store_.health()) co_return store_failed(std::move(error));
  if (error.code == Errc::corrupt && !inflight.update.checksum) {
    // The base version is damaged.
    report_damaged(inflight.update.id);
    const cluster::Target* const tail = serving_tail(*routed_chain());
    if (tail == nullptr || tail->id != id_) error.code = Errc::unreachable;
    co_return error;
  }
  if (error.code != Errc::corrupt) co_return error;
  // The predecessor got another result from the same update: it verifies its own copy and sends the
  // whole chunk, which needs no base here.
  if (!inflight.checked) co_return error;
  FF_CO_TRY(const bool sound,
            co_await own_is_sound(inflight.update.id, chunk::VersionKind::committed));
  if (!sound) report_damaged(inflight.update.id);
  if (sound) {
    log_error(
        "two replicas differ although both match their checksums",
        {{"target", id_}, {"chunk", to_string(inflight.update.id)}, {"error", error.message}});
  }
  co_return fail_target(std::move(error));
}

Task<Result<bool>> Replica::own_is_sound(chunk::ChunkId id, chunk::VersionKind kind) {
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  const bool pending = kind == chunk::VersionKind::pending;
  if (pending && !state.pending) co_return true;
  const uint64_t length = pending ? state.pending->state.length : state.committed.length;
  const BufferPool::Buffer bytes = context_.buffers.allocate(length);
  auto reading = store_.read({.target = id_, .id = id, .kind = kind}, bytes.span());
  const auto read = co_await std::move(reading);
  co_return read.ok() || read.error().code == Errc::not_found;
}

// The successor got another result from the update than this target.
Task<Result<void>> Replica::check_own_copy(InflightUpdate& inflight, Error error) {
  FF_CO_TRY(const bool sound,
            co_await own_is_sound(inflight.update.id, chunk::VersionKind::pending));
  if (!sound) co_return fail_target(std::move(error));
  inflight.checked = true;  // so the copy of the successor is wrong
  co_return Result<void>();
}

Task<Result<UpdateOutcome>> Replica::store_replacement(InflightUpdate& inflight) {
  const chunk::Update& update = inflight.update;
  inflight.state = {.version = update.version,
                    .length = update.data.size(),
                    .checksum = update.checksum.value_or(0),
                    .removed = update.type == UpdateType::remove};
  chunk::ChunkCopy install{.target = id_,
                           .id = update.id,
                           .state = inflight.state,
                           .chain_version = inflight.chain_version,
                           .data = update.data};
  if (inflight.epoch != epoch_) co_return stale("has left the chain");
  const OperationTracker::Operation operation(operations_, seen_version_);
  const auto known = channel_result(update.request_id);
  if (!known || known->sequence <= update.request_id.sequence)
    install.request_id = update.request_id;
  const auto installed = co_await store_.install(install);
  if (!installed) co_return copy_failed(installed.error());
  co_return UpdateOutcome{inflight.state, inflight.chain_version};
}

// Reads the whole new version.
Task<Result<void>> Replica::read_whole(InflightUpdate& inflight) {
  if (inflight.has_whole || inflight.state.removed) co_return Result<void>();
  inflight.whole = context_.buffers.allocate(inflight.state.length);
  auto reading =
      store_.read({.target = id_, .id = inflight.update.id, .kind = chunk::VersionKind::pending},
                  inflight.whole.span());
  const auto read = co_await std::move(reading);
  if (!read && read.error().code == Errc::corrupt) co_return fail_target(read.error());
  if (!read) co_return store_failed(read.error());
  inflight.has_whole = true;
  co_return Result<void>();
}

wire::Place Replica::place_of(cluster::TargetId target, uint64_t version) const {
  wire::Place place;
  place.set_chain(chain_);
  place.set_chain_version(version);
  place.set_target(target);
  return place;
}

Task<Result<UpdateOutcome>> Replica::forward_to_successor(InflightUpdate& inflight, ChainRole role,
                                                          cluster::Target successor,
                                                          uint64_t version) {
  chunk::Update sent = inflight.update;
  const bool as_it_came = inflight.origin == InflightUpdate::Origin::received;
  const bool whole = !role.successor_serving || inflight.checked;
  if (!as_it_came || (whole && !is_whole(sent))) {
    const bool all = as_it_came && sent.type == UpdateType::write && sent.offset == 0 &&
                     sent.data.size() == inflight.state.length;
    if (!all) {
      FF_CO_TRY(co_await read_whole(inflight));
      sent.data = inflight.whole.span();
    }
    sent.type = inflight.state.removed ? UpdateType::remove : UpdateType::replace;
    sent.chunk_size = chunk::kChunkMax;
  }
  wire::ForwardRequest request;
  to_wire(sent, *request.mutable_write());
  *request.mutable_write()->mutable_place() = place_of(successor.id, version);
  const bool all_of_it = sent.type == UpdateType::replace;
  request.mutable_write()->set_data_crc(all_of_it ? inflight.state.checksum
                                                  : simd::crc32c(sent.data));
  request.set_version(inflight.state.version);
  request.set_checksum(inflight.state.checksum);
  request.set_checked(inflight.checked);
  FF_CO_TRY(const wire::WriteReply reply,
            co_await call(successor.node, kForward, std::move(request), sent.data, kForwardNs));
  co_return UpdateOutcome{from_wire(reply.image()), reply.chain_version()};
}

Task<Result<UpdateOutcome>> Replica::commit(InflightUpdate& inflight, uint64_t chain_version) {
  const OperationTracker::Operation operation(operations_, seen_version_);
  const auto committed =
      co_await store_.commit(id_, inflight.update.id, inflight.state.version, chain_version);
  if (!committed) co_return store_failed(committed.error());
  co_return UpdateOutcome{inflight.state, chain_version};
}

// The successors have committed: if this process dies before it has recorded that, the version is
// pending again, and they tell.
Result<UpdateOutcome> Replica::commit_soon(InflightUpdate& inflight, uint64_t chain_version) {
  const auto committed =
      store_.commit_soon(id_, inflight.update.id, inflight.state.version, chain_version);
  if (!committed) return store_failed(committed.error());
  return UpdateOutcome{inflight.state, chain_version};
}

// No successor has the update, so it never happened.
Task<Result<UpdateOutcome>> Replica::drop_pending(InflightUpdate& inflight, Error error) {
  const OperationTracker::Operation operation(operations_, seen_version_);
  const auto dropped =
      co_await store_.drop_pending(id_, inflight.update.id, inflight.state.version);
  if (!dropped) co_return store_failed(dropped.error());
  co_return error;
}

// Resolves the pending version of a chunk, if there is one.
Task<Result<void>> Replica::resolve_pending(chunk::ChunkId id) {
  FF_CO_TRY(auto hold, co_await locks_.lock(id));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!state.pending) co_return Result<void>();
  const auto ended = co_await run_to_end(resume_pending(std::move(hold), *state.pending, id));
  if (!ended && !is_refusal(ended.error())) co_return ended.error();
  co_return Result<void>();
}

}  // namespace ff::chain
