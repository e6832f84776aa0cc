// chunk_store_log.cc: moves the data of small updates from the log of the metadata to its blocks,
// so that segments of the log become free.
//
// The log is the intent: a block is overwritten in place only when the data is durable in the log,
// when no undo row can bring back a version without it, and when no read of such a version is left.
// The rows lose their references to the log when the blocks are durable, and a segment is free when
// that is durable, too. So a crash at any moment leaves a row, and the data that it refers to.
#include <algorithm>
#include <utility>

#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/chunk_store.h"
#include "storage/chunk/logged_rows.h"

namespace ff::chunk {
namespace {

// Adjacent units that are written to a block with one I/O, if they are not larger.
constexpr uint64_t kMovedAtOnce = kBufferedWriteMax;
static_assert(kMovedAtOnce <= kLoggedUnitsMax);

constexpr size_t kChunksPerTurn = 8;  // before other tasks run

ChunkVersions copy_of(const ChunkVersions& from) {
  ChunkVersions copy;
  copy.committed = from.committed;
  copy.chain_version = from.chain_version;
  copy.removed_ns = from.removed_ns;
  if (from.pending) copy.pending = std::make_unique<ChunkVersions::Pending>(*from.pending);
  return copy;
}

bool has_logged_before(const ChunkVersion& version, uint64_t end) {
  return std::ranges::any_of(version.logged,
                             [&](const LoggedUnit& unit) { return unit.lsn < end; });
}

bool is_in_log(const ChunkVersions& versions, uint64_t end) {
  return has_logged_before(versions.committed, end) ||
         (versions.pending && has_logged_before(versions.pending->version, end));
}

// `units` ascend.
bool contains(const std::vector<LoggedUnit>& units, const LoggedUnit& unit) {
  const auto at = std::ranges::lower_bound(units, unit.unit, {}, &LoggedUnit::unit);
  return at != units.end() && *at == unit;
}

void drop_units(ChunkVersion& version, const std::vector<LoggedUnit>& moved) {
  std::erase_if(version.logged, [&](const LoggedUnit& unit) { return contains(moved, unit); });
}

}  // namespace

Task<Result<void>> ChunkStore::read_log(uint64_t lsn, ByteSpan into) {
  const LogPlace place = metadata_->find(lsn);
  if (place.file == nullptr) {
    co_return fail(Errc::corrupt, "{}: the log has no data at position {}", dir(), lsn);
  }
  const auto hit = place.file->read_cached(into, place.offset);
  if (hit && *hit) co_return Result<void>();
  auto got = co_await queue_.read(*place.file, into, place.offset);
  if (!got) co_return std::move(got).error();
  if (*got == into.size()) co_return Result<void>();
  co_return fail(Errc::corrupt, "{}: the file ends before position {} of the log",
                 place.file->path(), lsn);
}

// Waits until every read that has begun before has ended.
Task<Result<void>> ChunkStore::wait_for_reads() {
  Event ended(options_.loop);
  read_phase_->when_ended = &ended;
  read_phase_ = std::make_shared<Phase>();
  co_return co_await wait_for(ended).shielded();
}

// Also ends the time of undo rows of changes up to now.
Task<Result<void>> ChunkStore::make_all_durable() {
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return co_await sync();
}

// Chunks with data before `end` in the log, in the order of their blocks. A target that is being
// removed needs none.
ChunkStore::ChunkIds ChunkStore::chunks_in_log(uint64_t end) const {
  std::vector<std::pair<BlockLocation, std::pair<TargetId, ChunkId>>> found;
  for (const auto& [target, entry] : targets_) {
    if (entry.record.removing) continue;
    for (const auto& [id, chunk] : entry.chunks.used()) {
      if (!is_in_log(chunk.versions, end)) continue;
      const auto block = chunk.versions.committed.block.location();
      found.push_back({block.value_or(BlockLocation()), {target, id}});
    }
  }
  std::ranges::sort(found);
  ChunkIds ids;
  for (const auto& [block, id] : found) ids.push_back(id);
  return ids;
}

// Writes the units of a committed version that are in the log before `end` to its block, through
// `memory` of kLoggedUnitsMax bytes. Bytes that do not match their CRC32C keep it: reads of them
// fail, and the chain repairs the chunk.
Task<Result<void>> ChunkStore::write_units(ChunkVersion version, uint64_t end, ByteSpan memory,
                                           MovedChunk& moved) {
  std::ranges::copy_if(version.logged, std::back_inserter(moved.written),
                       [&](const LoggedUnit& unit) { return unit.lsn < end; });
  const auto& units = moved.written;
  if (units.empty() || BlockStore::lost(version.block)) co_return Result<void>();
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(version.block));
  const uint64_t unit_bytes = version.unit_bytes();
  for (size_t i = 0; i < units.size();) {
    size_t count = 1;
    while (i + count < units.size() && units[i + count].unit == units[i].unit + count &&
           (count + 1) * unit_bytes <= kMovedAtOnce) {
      ++count;
    }
    const ByteSpan bytes = memory.first(count * unit_bytes);
    for (size_t j = 0; j < count; ++j) {
      const LoggedUnit& unit = units[i + j];
      const ByteSpan whole = bytes.subspan(j * unit_bytes, unit_bytes);
      const ByteSpan into = whole.first(version.unit_length(unit.unit));
      FF_CO_TRY(co_await read_log(unit.lsn, into));
      std::ranges::fill(whole.subspan(into.size()), std::byte(0));
      if (simd::crc32c(into) != unit.crc) version.set_suspect(true);
      (*crcs)[unit.unit] = unit.crc;
    }
    FF_CO_TRY(co_await blocks_.write(version.block, units[i].unit * unit_bytes, bytes));
    i += count;
  }
  const uint64_t first = units.front().unit;
  co_return co_await blocks_.store_crcs(version.block, crcs, first, units.back().unit + 1 - first);
}

// Reads the units of a pending version that are in the log before `end` and are not those of the
// committed one: they cannot go to the block while the version may be dropped.
Task<Result<void>> ChunkStore::read_pending_units(ChunkVersion version, uint64_t end,
                                                  MovedChunk& moved) {
  for (const LoggedUnit& unit : version.logged) {
    if (unit.lsn >= end || contains(moved.written, unit)) continue;
    CarriedUnit carried{.unit = unit, .bytes = std::string(version.unit_length(unit.unit), '\0')};
    const ByteSpan into(reinterpret_cast<std::byte*>(carried.bytes.data()), carried.bytes.size());
    FF_CO_TRY(co_await read_log(unit.lsn, into));
    moved.carried.push_back(std::move(carried));
  }
  co_return Result<void>();
}

Task<Result<ChunkStore::MovedChunk>> ChunkStore::move_units(TargetId target, ChunkId id,
                                                            uint64_t end, ByteSpan memory) {
  MovedChunk moved{.target = target, .id = id, .written = {}, .carried = {}};
  const auto entry = targets_.find(target);
  const Chunk* const chunk = entry == targets_.end() ? nullptr : find(entry->second, id);
  if (chunk == nullptr) co_return moved;
  ChunkVersion pending;
  if (chunk->versions.pending) pending = chunk->versions.pending->version;
  FF_CO_TRY(co_await write_units(chunk->versions.committed, end, memory, moved));
  FF_CO_TRY(co_await read_pending_units(std::move(pending), end, moved));
  co_return moved;
}

Chunk* ChunkStore::find_moved(const MovedChunk& moved) {
  const auto entry = targets_.find(moved.target);
  const bool gone = entry == targets_.end() || entry->second.record.removing;
  return gone ? nullptr : entry->second.chunks.find(moved.id);
}

// Makes the versions of the chunk, which is not busy, refer to their blocks. If the rows are lost,
// the old ones still find the data in the log.
void ChunkStore::release_units(const MovedChunk& moved, Chunk& chunk) {
  ChunkVersions after = copy_of(chunk.versions);
  drop_units(after.committed, moved.written);
  if (after.pending) drop_units(after.pending->version, moved.written);
  RowChanges rows;
  append_logged_rows(rows, moved.target, moved.id, chunk.versions, after);
  chunk.versions = std::move(after);
  chunk.changed_epoch = blocks_.epoch();
  committer_->commit_later(rows);
}

// The same for all of them. A chunk that is busy, maybe all the time, follows as soon as it is
// released.
Task<Result<void>> ChunkStore::release_all(const std::vector<MovedChunk>& all) {
  Event ended(options_.loop);
  auto phase = std::make_shared<Phase>();
  phase->when_ended = &ended;
  for (const MovedChunk& moved : all) {
    Chunk* const chunk = find_moved(moved);
    if (chunk == nullptr) continue;
    if (!chunk->busy) {
      release_units(moved, *chunk);
      continue;
    }
    chunk->when_released = [this, moved, phase](Chunk& released) {
      release_units(moved, released);
    };
  }
  phase.reset();
  co_return co_await wait_for(ended).shielded();
}

// The state of the chunk whose pending version has its carried units at the end of the log: from
// `next_lsn` on, if an entry begins with `data`.
ChunkVersions ChunkStore::with_carried(const ChunkVersions& now, const MovedChunk& moved,
                                       uint64_t next_lsn, RowChanges& data) {
  ChunkVersions after = copy_of(now);
  if (!after.pending) return after;
  for (const CarriedUnit& carried : moved.carried) {
    auto& logged = after.pending->version.logged;
    const auto unit = std::ranges::find(logged, carried.unit);
    if (unit == logged.end()) continue;
    unit->lsn = next_lsn;
    next_lsn += carried.bytes.size() + kDataAt;
    data.push_back(data_change(as_bytes(std::string_view(carried.bytes))));
  }
  return after;
}

// A chunk that is busy now, or whose version is committed meanwhile, has its turn in the next round
// of move_log(). If the log has no space, the disk has failed: rows and memory would differ.
Task<Result<void>> ChunkStore::carry_units(const MovedChunk& moved) {
  Chunk* const chunk = find_moved(moved);
  if (chunk == nullptr || chunk->busy) co_return Result<void>();
  RowChanges changes;
  ChunkVersions after = with_carried(chunk->versions, moved, committer_->next_data_lsn(), changes);
  if (changes.empty()) co_return Result<void>();
  append_logged_rows(changes, moved.target, moved.id, chunk->versions, after);
  chunk->versions = std::move(after);
  chunk->changed_epoch = blocks_.epoch();
  auto committed = co_await commit_rows(std::move(changes));
  if (committed) co_return committed;
  committed.error().code = Errc::failed;
  co_return record_failure(std::move(committed).error());
}

// Moves all data before `end` out of the log, so that nobody needs the segments before.
Task<Result<void>> ChunkStore::move_log(uint64_t end) {
  const AlignedBuffer memory(kLoggedUnitsMax);
  FF_CO_TRY(co_await make_all_durable());
  for (;;) {
    FF_CO_TRY(co_await wait_for_reads());
    std::vector<MovedChunk> all;
    for (const auto& [target, id] : chunks_in_log(end)) {
      FF_CO_TRY(MovedChunk moved, co_await move_units(target, id, end, memory.span()));
      all.push_back(std::move(moved));
      if (all.size() % kChunksPerTurn == 0) (void)co_await YieldWait(options_.loop);
    }
    if (!all.empty()) FF_CO_TRY(co_await make_all_durable());
    FF_CO_TRY(co_await release_all(all));
    for (const MovedChunk& moved : all) {
      if (!moved.carried.empty()) FF_CO_TRY(co_await carry_units(moved));
    }
    // Undo rows may have the data, too, until all is durable that is now.
    const bool last = chunks_in_log(end).empty();
    FF_CO_TRY(co_await make_all_durable());
    if (last) co_return co_await wait_for_reads();
  }
}

// The same when a disk is opened: nothing else runs, and all is durable. Adds to `first` what the
// new log begins with; the result holds the bytes in it.
Task<Result<std::vector<ChunkStore::MovedChunk>>> ChunkStore::move_found_log(RowChanges& first) {
  RowChanges rows;
  uint64_t next_lsn = metadata_->position() + kEntryHeaderBytes + kDataAt;
  std::vector<MovedChunk> all;
  const AlignedBuffer memory(kLoggedUnitsMax);
  for (const auto& [target, id] : chunks_in_log(UINT64_MAX)) {
    FF_CO_TRY(MovedChunk moved, co_await move_units(target, id, UINT64_MAX, memory.span()));
    all.push_back(std::move(moved));
    ChunkVersions& versions = targets_.at(target).chunks.find(id)->versions;
    drop_units(versions.committed, all.back().written);
    if (versions.pending) drop_units(versions.pending->version, all.back().written);
    const size_t before = first.size();
    versions = with_carried(versions, all.back(), next_lsn, first);
    for (size_t i = before; i < first.size(); ++i) next_lsn += first[i].data.size() + kDataAt;
    append_logged_rows(rows, target, id, ChunkVersions(), versions);
  }
  std::ranges::move(rows, std::back_inserter(first));
  FF_CO_TRY(co_await blocks_.sync());
  co_return all;
}

Task<Result<void>> ChunkStore::checkpoint() {
  const uint64_t end = metadata_->segment();
  FF_CO_TRY(co_await move_log(metadata_->segment_lsn()));
  co_await committer_->run_checkpoint(end).shielded();
  co_return Result<void>();
}

Task<void> ChunkStore::run_checkpoints() {
  for (;;) {
    (void)co_await committer_->checkpoint_needed();
    if (checkpoints_.cancellation().requested() || failure_) co_return;
    auto done = co_await checkpoint();
    checkpoint_ended_.set();
    checkpoint_ended_.reset();
    if (checkpoints_.cancellation().requested() || failure_) co_return;
    if (done) continue;
    committer_->put_off_checkpoint();  // the disk is full, or the store fails now
    (void)record_failure(std::move(done).error());
  }
}

}  // namespace ff::chunk
