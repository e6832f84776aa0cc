// replica_read.cc: what is committed, asked of any target that serves. One without a pending
// version knows by itself; else the last that serves is asked, which commits before all others.
#include <algorithm>
#include <utility>

#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkState;
using chunk::Which;

// Which of the chunk's versions here is the chain's committed one; nothing: to be looked at again.
Task<Result<std::optional<Which>>> Replica::which_counts(uint64_t version, chunk::ChunkId id) {
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!state.pending) co_return std::optional(Which::committed);
  const cluster::Target tail = *reading_tail(*routed());
  if (tail.id == id_) {
    // Somebody else may have committed it, and shown it, before this one was the last.
    auto settling = settle(id);
    FF_CO_TRY(co_await std::move(settling));
    co_return std::nullopt;
  }
  wire::CommittedRequest request;
  *request.mutable_place() = place_of(tail.id, version);
  *request.mutable_chunk() = to_wire(id);
  auto asking = call(tail.node, kCommitted, std::move(request), {}, kPeerCallNs);
  auto reply = co_await std::move(asking);
  if (!reply) {
    // It may have gone: then the caller is to look for other targets, as for this one.
    if (reply.error().code != Errc::interrupted) reply.error().code = Errc::stale;
    co_return std::move(reply).error();
  }
  FF_CO_TRY(const ChunkState now, store_.state(id_, id));
  if (now.committed.version >= reply->version()) co_return std::optional(Which::committed);
  const bool coming = now.pending && now.pending->image.version == reply->version();
  if (coming) co_return std::optional(Which::pending);
  // It comes into being anew, and the tail has a tombstone still: neither is there.
  const bool anew = now.committed.version == 0 && now.pending && now.pending->image.version == 1;
  if (anew) co_return std::optional(Which::committed);
  co_return std::nullopt;
}

Task<Result<chunk::ReadDone>> Replica::read(uint64_t version, chunk::ChunkId id, uint64_t offset,
                                            ByteSpan into, bool unseen) {
  for (;;) {
    FF_CO_TRY(may_answer(version));
    auto choosing = which_counts(version, id);
    FF_CO_TRY(const auto which, co_await std::move(choosing));
    if (which) {
      FF_CO_TRY(const ChunkState state, store_.state(id_, id));
      const bool pending = *which == Which::pending;
      const uint64_t wanted = pending && state.pending ? state.pending->image.version : 0;
      auto reading = store_.read(
          {.target = id_, .id = id, .which = *which, .offset = offset, .unseen = unseen}, into);
      auto done = co_await std::move(reading);
      FF_CO_TRY(may_answer(version));
      // A pending version may have been committed meanwhile, and the next have come.
      const bool moved = pending && (done ? done->state.version != wanted
                                          : done.error().code == Errc::not_found &&
                                                store_.state(id_, id)->committed.version >= wanted);
      if (!moved) {
        count(id, done);
        const bool absent = !done && done.error().code == Errc::not_found &&
                            store_.state(id_, id)->committed.version == 0;
        if (absent && missing(id)) co_return missing_error(id);
        co_return done;
      }
    }
    YieldWait again(context_.loop);
    FF_CO_TRY(co_await again);
  }
}

void Replica::count(chunk::ChunkId id, const Result<chunk::ReadDone>& read) {
  counters_.reads.add();
  if (read) counters_.read_bytes.add(read->bytes);
  if (read || read.error().code != Errc::corrupt) return;
  counters_.damaged.add();
  damaged(id);
}

Task<Result<uint64_t>> Replica::committed(uint64_t version, chunk::ChunkId id) {
  for (;;) {
    FF_CO_TRY(be_tail(version));
    FF_CO_TRY(const ChunkState state, store_.state(id_, id));
    if (!state.pending) co_return state.committed.version;
    auto settling = settle(id);
    FF_CO_TRY(co_await std::move(settling));
  }
}

Task<Result<std::optional<chunk::ChunkInfo>>> Replica::last(uint64_t version, uint64_t inode) {
  for (;;) {
    FF_CO_TRY(be_tail(version));
    FF_CO_TRY(auto found, store_.query_last(id_, inode));
    if (!found || !found->state.pending) co_return found;
    auto settling = settle(found->id);
    FF_CO_TRY(co_await std::move(settling));
  }
}

Task<Result<chunk::ChunksPage>> Replica::chunks(uint64_t version, chunk::ChunksAsked asked) {
  for (;;) {
    FF_CO_TRY(be_tail(version));
    FF_CO_TRY(auto page, store_.chunks(id_, asked));
    const auto pending = std::ranges::find_if(
        page.chunks, [](const chunk::ChunkInfo& info) { return info.state.pending.has_value(); });
    if (pending == page.chunks.end()) co_return page;
    auto settling = settle(pending->id);
    FF_CO_TRY(co_await std::move(settling));
  }
}

Result<std::vector<uint64_t>> Replica::inodes(uint64_t version, uint64_t from, size_t limit) {
  FF_TRY(be_tail(version));
  return store_.inodes(id_, from, limit);
}

}  // namespace ff::chain
