// replica_copy.cc: bringing a target that has come back to what its predecessor has, while both are
// written to. The predecessor asks for a page of the other's chunks, compares, and sends what
// differs under the chunk's lock; the other takes what it does not have from this life already.
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

struct Replica::Copying {
  uint64_t version = 0;  // of the chain
  cluster::Target to;
  uint64_t copied = 0;  // bytes that the other has
  uint64_t to_copy = 0;
};

// Until it is done, or the chain has another version: then look() begins anew.
Task<void> Replica::run_copy(uint64_t version) {
  Backoff backoff(context_.rng, kCopyRetryFirstNs, kCopyRetryLastNs);
  while (ready_ && routed()->version == version) {
    Copying copying{.version = version, .to = *part_of(*routed(), id_)->successor};
    auto copy = copy_all(copying);
    const auto copied = co_await std::move(copy);
    if (copied) co_return;
    if (copied.error().code == Errc::interrupted) co_return;
    if (copied.error().code != Errc::stale) {
      log_warning("copying to a target that came back",
                  {{"target", copying.to.id}, {"error", copied.error().message}});
    }
    auto waiting = wait_for_change(backoff.pause_ns());
    const auto waited = co_await std::move(waiting);
    if (!waited) co_return;
  }
}

Task<Result<void>> Replica::copy_all(Copying& copying) {
  // What began while there was nobody to pass it on to.
  auto waiting = steps_.wait_before(copying.version);
  FF_CO_TRY(co_await std::move(waiting));
  ChunkId from;
  for (;;) {
    FF_CO_TRY(const auto page, store_.list(id_, from, kChunkPage));
    for (const ChunkInfo& info : page) copying.to_copy += info.state.committed.length;
    if (page.size() < kChunkPage) break;
    from = chunk::next(page.back().id);
    YieldWait others(context_.loop);
    FF_CO_TRY(co_await others);
  }
  from = {};
  for (bool more = true; more;) {
    FF_CO_TRY(take_part(copying.version));
    // The other's list first: what is in it alone has not come into being since.
    wire::ListRequest request;
    *request.mutable_place() = place_of(copying.to.id, copying.version);
    *request.mutable_chunk() = to_wire(from);
    request.set_limit(kChunkPage);
    request.set_copied(copying.copied);
    request.set_to_copy(copying.to_copy);
    auto calling = call(copying.to.node, kList, std::move(request), {}, kStepNs);
    FF_CO_TRY(const wire::ListReply reply, co_await std::move(calling));
    std::vector<ChunkInfo> remote;
    for (const wire::ListedChunk& listed : reply.chunks()) remote.push_back(from_wire(listed));
    FF_CO_TRY(auto local, store_.list(id_, from, kChunkPage));
    // As far as both lists go.
    ChunkId end{UINT64_MAX, UINT64_MAX};
    more = remote.size() >= kChunkPage || local.size() >= kChunkPage;
    if (remote.size() >= kChunkPage) end = remote.back().id;
    if (local.size() >= kChunkPage) end = std::min(end, local.back().id);
    auto copy = copy_page(copying, std::move(remote), std::move(local), end);
    FF_CO_TRY(co_await std::move(copy));
    from = chunk::next(end);
  }
  auto results = copy_results(copying);
  FF_CO_TRY(co_await std::move(results));
  FF_CO_TRY(take_part(copying.version));
  wire::CopiedRequest request;
  *request.mutable_place() = place_of(copying.to.id, copying.version);
  request.set_verifier(verifier_);
  auto calling = call(copying.to.node, kCopied, std::move(request), {}, kDurableNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<void>> Replica::copy_page(Copying& copying, std::vector<ChunkInfo> remote,
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
    if (same) copying.copied += own.committed.length;
    if (!same) differ.push_back(info.id);
  }
  for (const auto& [id, state] : theirs) differ.push_back(id);

  Result<void> first_error;
  Cancel& cancel = *co_await current_cancel();
  Semaphore window(context_.loop, kCopiesAtOnce);
  Gate copies(context_.loop);
  for (const ChunkId id : differ) {
    auto waiting = window.take(1);
    auto slot = co_await std::move(waiting);
    if (!slot) first_error = slot.error();
    if (!first_error) break;
    copies.spawn([](Task<Result<void>> copy, Semaphore::Hold, Result<void>& error,
                    Cancel& with) -> Task<void> {
      auto copied = co_await std::move(copy).under(with);
      if (!copied && error) error = copied;
    }(copy_chunk(copying, id), std::move(*slot), first_error, cancel));
  }
  co_await copies.wait_empty();
  co_return first_error;
}

Task<Result<void>> Replica::copy_chunk(Copying& copying, ChunkId id) {
  auto locking = locks_.take(id);
  FF_CO_TRY(const auto hold, co_await std::move(locking));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  // What is here may be half of a step at which the disk has failed.
  FF_CO_TRY(take_part(copying.version));
  if (state.pending) co_return stale("has a version that nobody carries on");
  if (state.committed.version > 0) {
    auto copy = copy_whole(copying, id, state);
    co_return co_await std::move(copy);
  }
  wire::EraseRequest request;
  *request.mutable_place() = place_of(copying.to.id, copying.version);
  *request.mutable_chunk() = to_wire(id);
  auto calling = call(copying.to.node, kErase, std::move(request), {}, kStepNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// Nothing changes `state` meanwhile: the chunk is locked.
Task<Result<void>> Replica::copy_whole(Copying& copying, ChunkId id, const ChunkState& state) {
  auto pacing = context_.pace.take(state.committed.length);
  FF_CO_TRY(co_await std::move(pacing));
  const Memory::Bytes bytes = context_.memory.take(state.committed.length);
  wire::CopyRequest request;
  if (!state.committed.removed) {
    auto reading = store_.read({.target = id_, .id = id}, bytes.span());
    const auto read = co_await std::move(reading);
    const bool is_damaged = !read && read.error().code == Errc::corrupt;
    if (!is_damaged) FF_CO_TRY(read);
    if (is_damaged) {
      // Should another replica have it, a repair follows; if none has, the other need not wait.
      damaged(id);
      auto salvaging = salvage(id, bytes.span(), request);
      FF_CO_TRY(co_await std::move(salvaging));
    }
  }
  *request.mutable_place() = place_of(copying.to.id, copying.version);
  *request.mutable_chunk() = to_wire(id);
  *request.mutable_image() = to_wire(state.committed);
  request.set_chain_version(state.chain_version);
  auto calling = call(copying.to.node, kCopy, std::move(request), bytes.span(), kStepNs);
  FF_CO_TRY(co_await std::move(calling));
  copying.copied += state.committed.length;
  co_return Result<void>();
}

Task<Result<void>> Replica::salvage(ChunkId id, ByteSpan into, wire::CopyRequest& request) {
  auto salvaging = store_.salvage(id_, id, into);
  FF_CO_TRY(const auto places, co_await std::move(salvaging));
  for (const chunk::Damage& place : places) {
    wire::Damage& damage = *request.add_damaged();
    damage.set_offset(place.offset);
    damage.set_length(place.length);
  }
  request.set_data_crc(simd::crc32c(into));
  co_return Result<void>();
}

// Those of updates under way come with their updates.
Task<Result<void>> Replica::copy_results(Copying& copying) {
  FF_CO_TRY(const auto results, store_.results(id_));
  for (size_t at = 0; at < results.size();) {
    wire::ResultsRequest request;
    *request.mutable_place() = place_of(copying.to.id, copying.version);
    for (; at < results.size() && request.results_size() < static_cast<int>(kChunkPage); at++) {
      if (results[at].result.committed) *request.add_results() = to_wire(results[at]);
    }
    auto calling = call(copying.to.node, kResults, std::move(request), {}, kStepNs);
    FF_CO_TRY(co_await std::move(calling));
  }
  co_return Result<void>();
}

// The other end.

Result<std::vector<ChunkInfo>> Replica::list(uint64_t version, ChunkId from, size_t limit) {
  FF_TRY(copied_to(version));
  FF_TRY(auto page, store_.list(id_, from, std::min(limit, kChunkPage)));
  // What is damaged here is to be copied as if it were not here.
  for (ChunkInfo& info : page) {
    if (store_.doubted(id_, info.id)) info.state = {};
  }
  return page;
}

// Whether what it has of the chunk is sound.
Task<Result<bool>> Replica::is_sound(ChunkId id) {
  auto checking = store_.check(id_, id);
  const auto sound = co_await std::move(checking);
  if (!sound) co_return store_failed(sound.error());
  co_return *sound;
}

Task<Result<void>> Replica::erase(uint64_t version, ChunkId id) {
  FF_CO_TRY(copied_to(version));
  auto locking = locks_.take(id);
  FF_CO_TRY(const auto hold, co_await std::move(locking));
  FF_CO_TRY(copied_to(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!wants_erase(state, version)) co_return Result<void>();
  const Steps::Hold step(steps_, seen_version_);
  auto erasing = store_.erase(id_, id);
  const auto erased = co_await std::move(erasing);
  if (!erased) co_return store_failed(erased.error());
  co_return Result<void>();
}

Task<Result<void>> Replica::copy(uint64_t version, chunk::Install copy, Pull pull) {
  FF_CO_TRY(copied_to(version));
  auto locking = locks_.take(copy.id);
  FF_CO_TRY(const auto hold, co_await std::move(locking));
  FF_CO_TRY(copied_to(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, copy.id));
  const bool wanted = wants_copy(state, copy.state, copy.chain_version, version);
  const bool doubted = store_.doubted(id_, copy.id);
  const bool same = state.committed == copy.state;
  if (!wanted && !(doubted && same)) co_return Result<void>();
  // What the other has only in parts may be whole here.
  if (same && (doubted || !copy.damaged.empty())) {
    auto checking = is_sound(copy.id);
    FF_CO_TRY(const bool sound, co_await std::move(checking));
    if (sound && (!wanted || !copy.damaged.empty())) co_return Result<void>();
  }
  const Memory::Bytes bytes = context_.memory.take(copy.state.length);
  if (copy.state.length > 0) {
    auto pulling = pull(bytes.span());
    FF_CO_TRY(co_await std::move(pulling));
    FF_CO_TRY(copied_to(version));
  }
  copy.target = id_;
  copy.data = bytes.span();
  const Steps::Hold step(steps_, seen_version_);
  auto installing = store_.install(copy);
  const auto installed = co_await std::move(installing);
  if (!installed) co_return copy_failed(installed.error());
  counters_.copied.add();
  counters_.copied_bytes.add(copy.data.size());
  if (!copy.damaged.empty()) damaged(copy.id);
  co_return Result<void>();
}

// What a channel has done since they were read is newer.
Task<Result<void>> Replica::results(uint64_t version, std::vector<chunk::ChannelInfo> results) {
  FF_CO_TRY(copied_to(version));
  std::erase_if(results, [&](const chunk::ChannelInfo& info) {
    const auto own = store_.result(id_, info.client, info.channel);
    return own && *own && (*own)->sequence > info.result.sequence;
  });
  auto installing = store_.install_results(id_, std::move(results));
  const auto installed = co_await std::move(installing);
  if (!installed) co_return store_failed(installed.error());
  co_return Result<void>();
}

Task<Result<void>> Replica::copied(uint64_t version, uint64_t verifier) {
  FF_CO_TRY(copied_to(version));
  auto setting = store_.set_target_state(id_, verifier);
  const auto set = co_await std::move(setting);
  if (!set) co_return store_failed(set.error());
  auto syncing = store_.sync();
  const auto synced = co_await std::move(syncing);
  if (!synced) co_return store_failed(synced.error());
  FF_CO_TRY(copied_to(version));
  verifier_ = verifier;
  lossy_ = false;
  context_.member.set_copied(id_, version);
  context_.poke();
  co_return Result<void>();
}

}  // namespace ff::chain
