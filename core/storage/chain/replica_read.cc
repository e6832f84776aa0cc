// replica_read.cc: reads of the committed version from any serving target. A target without a
// pending version knows it; otherwise it asks the last serving target, which commits first (CRAQ
// version query).
#include <algorithm>
#include <utility>

#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkState;
using chunk::VersionKind;

// Which local version of the chunk is the committed version of the chain; nothing: retry.
Task<Result<std::optional<VersionKind>>> Replica::committed_kind(uint64_t version,
                                                                 chunk::ChunkId id) {
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (!state.pending) co_return std::optional(VersionKind::committed);
  const cluster::Target tail = *serving_tail(*routed_chain());
  if (tail.id == id_) {
    // Another target may have committed and returned it before this one became the last.
    FF_CO_TRY(co_await resolve_pending(id));
    co_return std::nullopt;
  }
  wire::CommittedRequest request;
  *request.mutable_place() = place_of(tail.id, version);
  *request.mutable_chunk() = to_wire(id);
  auto asking = call(tail.node, kCommitted, std::move(request), {}, kPeerCallNs);
  auto reply = co_await std::move(asking);
  if (!reply) {
    // The tail may have left: the caller must look for other targets.
    if (reply.error().code != Errc::interrupted) reply.error().code = Errc::stale;
    co_return std::move(reply).error();
  }
  FF_CO_TRY(const ChunkState now, store_.state(id_, id));
  if (now.committed.version >= reply->version()) co_return std::optional(VersionKind::committed);
  const bool coming = now.pending && now.pending->state.version == reply->version();
  if (coming) co_return std::optional(VersionKind::pending);
  // The chunk is being created again and the tail still has its tombstone: neither is visible.
  const bool anew = now.committed.version == 0 && now.pending && now.pending->state.version == 1;
  if (anew) co_return std::optional(VersionKind::committed);
  co_return std::nullopt;
}

Task<Result<chunk::ReadResult>> Replica::read(uint64_t version, chunk::ChunkId id, uint64_t offset,
                                              ByteSpan into, bool zero_copy) {
  for (;;) {
    FF_CO_TRY(check_readable(version));
    FF_CO_TRY(const auto kind, co_await committed_kind(version, id));
    if (kind) {
      FF_CO_TRY(const ChunkState state, store_.state(id_, id));
      const bool pending = *kind == VersionKind::pending;
      const uint64_t wanted = pending && state.pending ? state.pending->state.version : 0;
      auto reading = store_.read(
          {.target = id_, .id = id, .kind = *kind, .offset = offset, .zero_copy = zero_copy}, into);
      auto done = co_await std::move(reading);
      FF_CO_TRY(check_readable(version));
      // The pending version may have been committed meanwhile, and the next one stored.
      const bool moved = pending && (done ? done->state.version != wanted
                                          : done.error().code == Errc::not_found &&
                                                store_.state(id_, id)->committed.version >= wanted);
      if (!moved) {
        count(id, done);
        const bool absent = !done && done.error().code == Errc::not_found &&
                            store_.state(id_, id)->committed.version == 0;
        if (absent && is_missing(id)) co_return missing_error(id);
        co_return done;
      }
    }
    YieldWait again(context_.loop);
    FF_CO_TRY(co_await again);
  }
}

void Replica::count(chunk::ChunkId id, const Result<chunk::ReadResult>& read) {
  metrics_.reads.add();
  if (read) metrics_.read_bytes.add(read->bytes);
  if (read || read.error().code != Errc::corrupt) return;
  metrics_.damaged.add();
  report_damaged(id);
}

Task<Result<uint64_t>> Replica::committed_version(uint64_t version, chunk::ChunkId id) {
  for (;;) {
    FF_CO_TRY(check_tail(version));
    FF_CO_TRY(const ChunkState state, store_.state(id_, id));
    if (!state.pending) co_return state.committed.version;
    FF_CO_TRY(co_await resolve_pending(id));
  }
}

Task<Result<std::optional<chunk::ChunkInfo>>> Replica::last_chunk(uint64_t version,
                                                                  uint64_t inode) {
  for (;;) {
    FF_CO_TRY(check_tail(version));
    FF_CO_TRY(auto found, store_.last_chunk(id_, inode));
    if (!found || !found->state.pending) co_return found;
    FF_CO_TRY(co_await resolve_pending(found->id));
  }
}

Task<Result<chunk::ChunkRangePage>> Replica::list_range(uint64_t version,
                                                        chunk::ChunkRangeQuery asked) {
  for (;;) {
    FF_CO_TRY(check_tail(version));
    FF_CO_TRY(auto page, store_.list_range(id_, asked));
    const auto pending = std::ranges::find_if(
        page.chunks, [](const chunk::ChunkInfo& info) { return info.state.pending.has_value(); });
    if (pending == page.chunks.end()) co_return page;
    FF_CO_TRY(co_await resolve_pending(pending->id));
  }
}

Result<std::vector<uint64_t>> Replica::list_inodes(uint64_t version, uint64_t from, size_t limit) {
  FF_TRY(check_tail(version));
  return store_.list_inodes(id_, from, limit);
}

}  // namespace ff::chain
