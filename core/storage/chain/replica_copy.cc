// replica_copy.cc: copies chunks to a syncing target while both targets receive updates. The
// predecessor requests a page of the other's chunks, compares, and sends what differs under the
// lock of the chunk; the other target stores what it has not received in this membership yet.
#include <algorithm>
#include <map>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;
using chunk::ChunkInfo;
using chunk::ChunkState;

namespace {

constexpr size_t kCopiesAtOnce = 8;  // chunks
constexpr int64_t kStepNs = 15 * kSecond;
constexpr int64_t kDurableNs = 60 * kSecond;
constexpr int64_t kCopyRetryFirstNs = 100 * kMillisecond;
constexpr int64_t kCopyRetryLastNs = 5 * kSecond;

}  // namespace

struct Replica::CopyJob {
  uint64_t version = 0;  // chain version
  cluster::Target to;
  uint64_t copied = 0;  // bytes that the receiver has
  uint64_t to_copy = 0;
};

// Retries until the copy is complete or the chain changes; then on_routing_change() starts a new
// copy.
Task<void> Replica::run_copy(uint64_t version) {
  Backoff backoff(context_.rng, kCopyRetryFirstNs, kCopyRetryLastNs);
  while (ready_ && routed_chain()->version == version) {
    CopyJob job{.version = version, .to = *role_of(*routed_chain(), id_)->successor};
    const auto copied = co_await copy_all(job);
    if (copied) co_return;
    if (copied.error().code == Errc::interrupted) co_return;
    if (copied.error().code != Errc::stale) {
      log_warning("cannot copy to the syncing target yet",
                  {{"target", job.to.id}, {"error", copied.error().message}});
    }
    const auto waited = co_await wait_for_change(backoff.next_delay_ns());
    if (!waited) co_return;
  }
}

Task<Result<void>> Replica::copy_all(CopyJob& job) {
  // Waits for operations that started before there was a target to forward them to.
  FF_CO_TRY(co_await operations_.wait_before(job.version));
  ChunkId from;
  for (;;) {
    FF_CO_TRY(const auto page, store_.list(id_, from, kChunkPage));
    for (const ChunkInfo& info : page) job.to_copy += info.state.committed.length;
    if (page.size() < kChunkPage) break;
    from = chunk::next(page.back().id);
    YieldWait others(context_.loop);
    FF_CO_TRY(co_await others);
  }
  from = {};
  for (bool more = true; more;) {
    FF_CO_TRY(check_role(job.version));
    // The other's list first: what is in it alone has not come into being since.
    wire::ListRequest request;
    *request.mutable_place() = place_of(job.to.id, job.version);
    *request.mutable_chunk() = to_wire(from);
    request.set_limit(kChunkPage);
    request.set_copied(job.copied);
    request.set_to_copy(job.to_copy);
    auto calling = call(job.to.node, kList, std::move(request), {}, kStepNs);
    FF_CO_TRY(const wire::ListReply reply, co_await std::move(calling));
    std::vector<ChunkInfo> remote;
    for (const wire::ListedChunk& listed : reply.chunks()) remote.push_back(from_wire(listed));
    FF_CO_TRY(auto local, store_.list(id_, from, kChunkPage));
    // Compares only up to the end of the shorter page.
    ChunkId end{UINT64_MAX, UINT64_MAX};
    more = remote.size() >= kChunkPage || local.size() >= kChunkPage;
    if (remote.size() >= kChunkPage) end = remote.back().id;
    if (local.size() >= kChunkPage) end = std::min(end, local.back().id);
    FF_CO_TRY(co_await copy_page(job, std::move(remote), std::move(local), end));
    from = chunk::next(end);
  }
  FF_CO_TRY(co_await copy_results(job));
  FF_CO_TRY(check_role(job.version));
  wire::CopiedRequest request;
  *request.mutable_place() = place_of(job.to.id, job.version);
  request.set_verifier(verifier_);
  auto calling = call(job.to.node, kCopied, std::move(request), {}, kDurableNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<void>> Replica::copy_page(CopyJob& job, std::vector<ChunkInfo> remote,
                                      std::vector<ChunkInfo> local, ChunkId end) {
  std::map<ChunkId, const ChunkState*> theirs;
  for (const ChunkInfo& info : remote) {
    if (info.id <= end) theirs[info.id] = &info.state;
  }
  std::vector<ChunkId> differ;
  for (const ChunkInfo& info : local) {
    if (info.id > end) break;
    const auto found = theirs.find(info.id);
    const ChunkState* const their = found == theirs.end() ? nullptr : found->second;
    if (found != theirs.end()) theirs.erase(found);
    const ChunkState& own = info.state;
    const bool same = their != nullptr && !their->pending && their->committed == own.committed &&
                      their->chain_version == own.chain_version && !own.pending;
    if (same) job.copied += own.committed.length;
    if (!same) differ.push_back(info.id);
  }
  for (const auto& [id, state] : theirs) differ.push_back(id);

  Result<void> first_error;
  CancellationToken& cancel = *co_await current_cancellation();
  Semaphore window(context_.loop, kCopiesAtOnce);
  Gate copies(context_.loop);
  for (const ChunkId id : differ) {
    auto slot = co_await window.acquire(1);
    if (!slot) first_error = slot.error();
    if (!first_error) break;
    copies.spawn([](Task<Result<void>> copy, Semaphore::Permit, Result<void>& error,
                    CancellationToken& with) -> Task<void> {
      auto copied = co_await std::move(copy).with_cancellation(with);
      if (!copied && error) error = copied;
    }(copy_chunk(job, id), std::move(*slot), first_error, cancel));
  }
  co_await copies.wait_empty();
  co_return first_error;
}

Task<Result<void>> Replica::copy_chunk(CopyJob& job, ChunkId id) {
  FF_CO_TRY(const auto hold, co_await locks_.lock(id));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  // The local state may be half of an operation during which the disk failed.
  FF_CO_TRY(check_role(job.version));
  if (state.pending) co_return stale("has a pending version of the chunk");
  if (state.committed.version > 0) {
    co_return co_await copy_whole(job, id, state);
  }
  wire::EraseRequest request;
  *request.mutable_place() = place_of(job.to.id, job.version);
  *request.mutable_chunk() = to_wire(id);
  auto calling = call(job.to.node, kErase, std::move(request), {}, kStepNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// `state` cannot change: the chunk is locked.
Task<Result<void>> Replica::copy_whole(CopyJob& job, ChunkId id, const ChunkState& state) {
  FF_CO_TRY(co_await context_.copy_limiter.acquire(state.committed.length));
  const BufferPool::Buffer bytes = context_.buffers.allocate(state.committed.length);
  wire::CopyRequest request;
  if (!state.committed.removed) {
    auto reading = store_.read({.target = id_, .id = id}, bytes.span());
    const auto read = co_await std::move(reading);
    const bool is_damaged = !read && read.error().code == Errc::corrupt;
    if (!is_damaged) FF_CO_TRY(read);
    if (is_damaged) {
      // If another replica has the data, a repair follows; if none has, the copy must not wait for
      // it.
      report_damaged(id);
      FF_CO_TRY(co_await salvage(id, bytes.span(), request));
    }
  }
  *request.mutable_place() = place_of(job.to.id, job.version);
  *request.mutable_chunk() = to_wire(id);
  *request.mutable_image() = to_wire(state.committed);
  request.set_chain_version(state.chain_version);
  FF_CO_TRY(co_await call(job.to.node, kCopy, std::move(request), bytes.span(), kStepNs));
  job.copied += state.committed.length;
  co_return Result<void>();
}

Task<Result<void>> Replica::salvage(ChunkId id, ByteSpan into, wire::CopyRequest& request) {
  FF_CO_TRY(const auto places, co_await store_.salvage(id_, id, into));
  for (const chunk::DamagedRange& place : places) {
    wire::Damage& damage = *request.add_damaged();
    damage.set_offset(place.offset);
    damage.set_length(place.length);
  }
  request.set_data_crc(simd::crc32c(into));
  co_return Result<void>();
}

// Results of updates in flight are transferred with these updates.
Task<Result<void>> Replica::copy_results(CopyJob& job) {
  FF_CO_TRY(const auto results, store_.channel_results(id_));
  for (size_t at = 0; at < results.size();) {
    wire::ResultsRequest request;
    *request.mutable_place() = place_of(job.to.id, job.version);
    for (; at < results.size() && request.results_size() < static_cast<int>(kChunkPage); at++) {
      if (results[at].result.committed) *request.add_results() = to_wire(results[at]);
    }
    auto calling = call(job.to.node, kResults, std::move(request), {}, kStepNs);
    FF_CO_TRY(co_await std::move(calling));
  }
  co_return Result<void>();
}

// The receiving side.

Result<std::vector<ChunkInfo>> Replica::list(uint64_t version, ChunkId from, size_t limit) {
  FF_TRY(check_syncing(version));
  FF_TRY(auto page, store_.list(id_, from, std::min(limit, kChunkPage)));
  // Reports damaged chunks as absent, so that they are copied.
  for (ChunkInfo& info : page) {
    if (store_.is_damaged(id_, info.id)) info.state = {};
  }
  return page;
}

// Whether the local data of the chunk is intact.
Task<Result<bool>> Replica::is_sound(ChunkId id) {
  const auto sound = co_await store_.verify(id_, id);
  if (!sound) co_return store_failed(sound.error());
  co_return *sound;
}

Task<Result<void>> Replica::erase(uint64_t version, ChunkId id) {
  FF_CO_TRY(check_syncing(version));
  FF_CO_TRY(const auto hold, co_await locks_.lock(id));
  FF_CO_TRY(check_syncing(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!needs_erase(state, version)) co_return Result<void>();
  const OperationTracker::Operation operation(operations_, seen_version_);
  const auto erased = co_await store_.erase(id_, id);
  if (!erased) co_return store_failed(erased.error());
  co_return Result<void>();
}

Task<Result<void>> Replica::copy(uint64_t version, chunk::ChunkCopy copy, PullData pull) {
  FF_CO_TRY(check_syncing(version));
  FF_CO_TRY(const auto hold, co_await locks_.lock(copy.id));
  FF_CO_TRY(check_syncing(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, copy.id));
  const bool wanted = needs_copy(state, copy.state, copy.chain_version, version);
  const bool doubted = store_.is_damaged(id_, copy.id);
  const bool same = state.committed == copy.state;
  if (!wanted && !(doubted && same)) co_return Result<void>();
  // A chunk that is damaged at the sender may be intact here.
  if (same && (doubted || !copy.damaged.empty())) {
    FF_CO_TRY(const bool sound, co_await is_sound(copy.id));
    if (sound && (!wanted || !copy.damaged.empty())) co_return Result<void>();
  }
  const BufferPool::Buffer bytes = context_.buffers.allocate(copy.state.length);
  if (copy.state.length > 0) {
    FF_CO_TRY(co_await pull(bytes.span()));
    FF_CO_TRY(check_syncing(version));
  }
  copy.target = id_;
  copy.data = bytes.span();
  const OperationTracker::Operation operation(operations_, seen_version_);
  const auto installed = co_await store_.install(copy);
  if (!installed) co_return copy_failed(installed.error());
  metrics_.copied.add();
  metrics_.copied_bytes.add(copy.data.size());
  if (!copy.damaged.empty()) report_damaged(copy.id);
  co_return Result<void>();
}

// Results that are newer than the received ones stay.
Task<Result<void>> Replica::install_results(uint64_t version,
                                            std::vector<chunk::ChannelInfo> results) {
  FF_CO_TRY(check_syncing(version));
  std::erase_if(results, [&](const chunk::ChannelInfo& info) {
    const auto own = store_.channel_result(id_, info.client, info.channel);
    return own && *own && (*own)->sequence > info.result.sequence;
  });
  const auto installed = co_await store_.install_channel_results(id_, std::move(results));
  if (!installed) co_return store_failed(installed.error());
  co_return Result<void>();
}

Task<Result<void>> Replica::finish_copy(uint64_t version, uint64_t verifier) {
  FF_CO_TRY(check_syncing(version));
  const auto set = co_await store_.set_target_state(id_, verifier);
  if (!set) co_return store_failed(set.error());
  const auto synced = co_await store_.sync();
  if (!synced) co_return store_failed(synced.error());
  FF_CO_TRY(check_syncing(version));
  verifier_ = verifier;
  power_lost_ = false;
  context_.member.set_copied(id_, version);
  context_.request_heartbeat();
  co_return Result<void>();
}

}  // namespace ff::chain
