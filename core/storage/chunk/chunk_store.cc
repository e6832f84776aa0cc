// chunk_store.cc: targets, changes of chunk rows, and the sync passes that make them durable.
//
// A sync pass ends an epoch: it syncs the data files, then durably deletes the undo rows of all
// epochs up to that one. An undo row is a copy of a chunk's row before its first change in an
// epoch, written in the transaction of that change. So after a power loss every chunk that changed
// since the last pass has undo rows. Opening the disk (chunk_store_open.cc) verifies these chunks
// and rolls back those whose data did not reach the disk. The blocks of older versions stay
// allocated until then. Changes whose data is in the log need no undo row.
#include "storage/chunk/chunk_store.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/chunk/chunk_store_claim.h"
#include "storage/chunk/logged_rows.h"

namespace ff::chunk {
namespace {

// A change becomes durable within a second even when nobody calls sync().
constexpr int64_t kSyncIntervalNs = kSecond;

// Maximum number of chunks or results that one transaction removes.
constexpr size_t kRemoveMax = 1000;

}  // namespace

ChunkStore::ChunkStore(ChunkStoreOptions options, DiskIdentity identity,
                       std::unique_ptr<io::File> lock, std::unique_ptr<Metadata> metadata)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      lock_(std::move(lock)),
      metadata_(std::move(metadata)),
      acked_(options_.memory_disk == nullptr
                 ? nullptr
                 : std::make_unique<AckedPosition>(*options_.memory_disk, options_.memory_dir,
                                                   identity_, options_.boot_id)),
      after_failure_(options_.after_failure),
      queue_(options_.disk, options_.loop, options_.queue_depth),
      blocks_(options_.disk, options_.dir, options_.direct, options_.buffered_write_max,
              options_.crc_cache_bytes, queue_),
      changed_(options_.loop),
      read_phase_(std::make_shared<Phase>()),
      checkpoint_ended_(options_.loop),
      sync_requested_(options_.loop),
      pass_finished_(options_.loop),
      gate_(options_.loop),
      checkpoints_(options_.loop) {}

ChunkStore::~ChunkStore() = default;

// Lookups.

Error ChunkStore::unknown_target(TargetId target) const {
  return fail(Errc::not_found, "{}: the disk has no target {}", dir(), target);
}

Result<ChunkStore::Target*> ChunkStore::find(TargetId target) {
  const auto found = targets_.find(target);
  if (found == targets_.end() || found->second.record.removing) return unknown_target(target);
  return &found->second;
}

Result<const ChunkStore::Target*> ChunkStore::find(TargetId target) const {
  const auto found = targets_.find(target);
  if (found == targets_.end() || found->second.record.removing) return unknown_target(target);
  return &found->second;
}

const Chunk* ChunkStore::find(Target& target, ChunkId id) {
  const Chunk* const found = target.chunks.find(id);
  return found == nullptr || found->versions.absent() ? nullptr : found;
}

ChunkStore::Target& ChunkStore::add_target(TargetId id) {
  return targets_.try_emplace(id, blocks_, options_.used_chunks_max).first->second;
}

// Claims a chunk for a change; the chunk need not exist.
Result<ChunkStore::Claim> ChunkStore::claim(TargetId target, ChunkId id) {
  FF_TRY(health());
  FF_TRY(Target* const entry, find(target));
  entry->chunks.pack_some(durable_epoch_);
  Chunk& chunk = entry->chunks.find_or_create(id);
  if (chunk.busy) {
    return fail(Errc::busy, "{}: chunk {} of target {} is being changed", dir(), to_string(id),
                target);
  }
  return Claim(target, *entry, id, chunk);
}

// Row changes.

Result<void> ChunkStore::health() const {
  if (!failure_) return {};
  return *failure_;
}

// Records a disk failure. A full disk and an invalid request are no failures.
Error ChunkStore::record_failure(Error error) {
  if (!failure_ && error.code != Errc::disk_full) {
    failure_ = fail(Errc::failed, "disk {} has failed: {}", dir(), error.message);
    failure_->hint = "Other replicas serve its data. Replace the disk.";
    if (acked_ != nullptr) acked_->end(AckedPosition::State::failed);
  }
  return error;
}

Task<Result<void>> ChunkStore::commit_rows(RowChanges changes) {
  auto committed = co_await committer_->commit(std::move(changes));
  if (!committed) co_return record_failure(std::move(committed).error());
  co_return Result<void>();
}

// The rows that replace the chunk's row by `next`, with `more`, the undo row, and the data of a
// small update. The next call must be that of the committer.
ChunkStore::Change ChunkStore::change_of(Claim& claim, ChunkVersions next, RowChanges more,
                                         const NewVersion* made) {
  const uint64_t epoch = blocks_.epoch();
  Chunk& chunk = claim.chunk();
  const ChunkId id = claim.id();
  if (made != nullptr && made->units > 0) {
    ChunkVersion& version = next.pending ? next.pending->version : next.committed;
    uint64_t lsn = committer_->next_data_lsn();
    auto unit = std::ranges::lower_bound(version.logged, made->first_unit, {}, &LoggedUnit::unit);
    for (uint64_t i = 0; i < made->units; ++i, ++unit, lsn += version.unit_bytes()) unit->lsn = lsn;
    more.insert(more.begin(), data_change(made->to_log));
  }
  const bool undo = (made == nullptr || !made->log_only) && chunk.undo_epoch != epoch;
  if (undo) {
    more.push_back({.key = key_of(RowKind::undo, {epoch, claim.target_id(), id.inode, id.index}),
                    .body = undo_row_of(chunk.versions)});
  }
  append_logged_rows(more, claim.target_id(), id, chunk.versions, next);
  std::optional<std::string> row;
  if (!next.absent()) row = row_of(next);
  more.push_back(
      {.key = key_of(RowKind::chunk, {claim.target_id(), id.inode, id.index}), .body = row});
  const bool renewed = !next.suspect() && claim.target().damaged.contains(id);
  if (renewed) more.push_back(damage_row(claim.target_id(), id, false));
  return {.next = std::move(next),
          .rows = std::move(more),
          .epoch = epoch,
          .undo = undo,
          .renewed = renewed};
}

// The change is in the log.
void ChunkStore::install(Claim& claim, Change change) {
  Chunk& chunk = claim.chunk();
  ChunkVersions& next = change.next;
  if (change.renewed) claim.target().damaged.erase(claim.id());
  if (change.undo) chunk.undo_epoch = change.epoch;
  chunk.changed_epoch = change.epoch;
  update_tombstones(claim.target(), claim.id(), next);
  claim.target().bytes += next.committed.state.length - chunk.versions.committed.state.length;
  chunk.versions = std::move(next);
  changed_epoch_ = std::max(changed_epoch_, change.epoch);
  changed_.set();
}

Task<Result<void>> ChunkStore::commit_versions(Claim& claim, ChunkVersions next, RowChanges more,
                                               const NewVersion* made) {
  Change change = change_of(claim, std::move(next), std::move(more), made);
  RowChanges rows = std::move(change.rows);
  FF_CO_TRY(co_await commit_rows(std::move(rows)));
  install(claim, std::move(change));
  co_return Result<void>();
}

void ChunkStore::update_tombstones(Target& target, ChunkId id, const ChunkVersions& versions) {
  if (versions.committed.state.removed && !versions.pending) {
    target.tombstones.insert(id);
  } else {
    target.tombstones.erase(id);
  }
}

// Damage.

void ChunkStore::mark_suspect(const ChunkVersions& versions) {
  versions.committed.set_suspect(true);
  if (versions.pending) versions.pending->version.set_suspect(true);
}

void ChunkStore::mark_damaged(TargetId target, ChunkId id) {
  const auto entry = find(target);
  if (!entry) return;
  const Chunk* const chunk = find(**entry, id);
  if (chunk == nullptr) return;
  mark_suspect(chunk->versions);
  if (!chunk->versions.suspect() || !(*entry)->damaged.insert(id).second) return;
  unrecorded_damage_.emplace_back(target, id);
  changed_.set();
}

Task<Result<bool>> ChunkStore::verify(TargetId target, ChunkId id) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const before, find(target));
  const auto phase = read_phase_;
  const Chunk* const chunk = find(*before, id);
  if (chunk == nullptr) co_return true;
  ChunkVersion stored_versions[2];
  stored_versions[0] = chunk->versions.committed;
  if (chunk->versions.pending) stored_versions[1] = chunk->versions.pending->version;
  for (const ChunkVersion& version : stored_versions) {
    auto sound = co_await verify_version(version);
    if (!sound) co_return record_failure(std::move(sound).error());
    if (!*sound) co_return false;
  }
  for (const ChunkVersion& version : stored_versions) version.set_suspect(false);
  FF_CO_TRY(Target* const entry, find(target));
  const Chunk* const now = find(*entry, id);
  if (now != nullptr && now->versions.suspect()) co_return false;  // it was changed meanwhile
  if (entry->damaged.erase(id) == 0) co_return true;
  RowChanges changes;
  changes.push_back(damage_row(target, id, false));
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  co_return true;
}

bool ChunkStore::is_damaged(TargetId target, ChunkId id) const {
  const auto entry = find(target);
  return entry && (*entry)->damaged.contains(id);
}

std::vector<ChunkId> ChunkStore::list_damaged(TargetId target, ChunkId from, size_t limit) const {
  std::vector<ChunkId> ids;
  const auto entry = find(target);
  if (!entry) return ids;
  for (auto at = (*entry)->damaged.lower_bound(from); at != (*entry)->damaged.end(); ++at) {
    if (ids.size() >= limit) break;
    ids.push_back(*at);
  }
  return ids;
}

// Durability.

Task<Result<void>> ChunkStore::sync_pass() {
  const uint64_t ended = blocks_.end_epoch();
  auto synced = co_await blocks_.sync();
  if (!synced) co_return record_failure(std::move(synced).error());
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::undo, {0}),
                     .body = std::nullopt,
                     .end = key_of(RowKind::undo, {ended + 1})});
  for (const auto& [target, id] : std::exchange(unrecorded_damage_, {})) {
    if (is_damaged(target, id)) changes.push_back(damage_row(target, id, true));
  }
  auto committed = co_await committer_->commit_durably(std::move(changes));
  if (!committed) co_return record_failure(std::move(committed).error());
  durable_epoch_ = ended;
  blocks_.reclaim(ended);
  co_return Result<void>();
}

Task<void> ChunkStore::run_sync_passes() {
  Loop& loop = options_.loop;
  for (;;) {
    (void)co_await changed_.wait();
    (void)co_await sync_requested_.wait(loop.now_ns() + kSyncIntervalNs);
    if (gate_.cancellation().requested() || failure_) break;
    changed_.reset();
    sync_requested_.reset();
    last_pass_result_ = co_await sync_pass().shielded();
    if (!last_pass_result_) changed_.set();  // retries after a second
    pass_finished_.set();
    pass_finished_.reset();
  }
  pass_finished_.set();
}

Task<Result<void>> ChunkStore::sync() {
  const uint64_t wanted = changed_epoch_;
  while (durable_epoch_ < wanted) {
    FF_CO_TRY(health());
    sync_requested_.set();
    FF_CO_TRY(co_await pass_finished_.wait());
    if (durable_epoch_ < wanted && !last_pass_result_) co_return last_pass_result_;
  }
  co_return health();
}

Task<Result<void>> ChunkStore::close() {
  Error closed = fail(Errc::interrupted, "{}: the store is closed", dir());
  co_await checkpoints_.close(closed);
  FF_CO_TRY(co_await sync());
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::disk, {}), .body = disk_row(true)});
  auto committed = co_await committer_->commit_durably(std::move(changes));
  co_await committer_->wait_idle();
  co_await gate_.close(std::move(closed));
  if (!committed) co_return record_failure(std::move(committed).error());
  if (acked_ != nullptr) acked_->end(AckedPosition::State::closed);
  failure_ = fail(Errc::refused, "{}: the store is closed", dir());
  co_return Result<void>();
}

Task<void> ChunkStore::abandon() {
  Error abandoned = fail(Errc::interrupted, "{}: the store has failed", dir());
  co_await checkpoints_.close(abandoned);
  co_await gate_.close(std::move(abandoned));
  co_await committer_->wait_idle();
}

Task<Result<void>> ChunkStore::set_owner_record(std::string record) {
  FF_CO_TRY(health());
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::owner_record, {}), .body = record});
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  owner_record_ = std::move(record);
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

// Targets.

Task<Result<void>> ChunkStore::create_target(TargetId target, uint64_t chain) {
  FF_CO_TRY(health());
  if (targets_.contains(target)) {
    co_return fail(Errc::exists, "{}: the disk already has target {}", dir(), target);
  }
  const TargetRecord record{.chain = chain};
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::target, {target}), .body = encode(record)});
  add_target(target).record = {
      .chain = chain, .state = 0, .removing = true};  // hidden until the row is committed
  auto committed = co_await commit_rows(std::move(changes)).shielded();
  if (!committed) {
    targets_.erase(target);
    co_return committed;
  }
  targets_.at(target).record = record;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> ChunkStore::set_target_state(TargetId target, uint64_t state) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const entry, find(target));
  TargetRecord record = entry->record;
  record.state = state;
  record.power_lost = false;
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::target, {target}), .body = encode(record)});
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  entry->record = record;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> ChunkStore::remove_target(TargetId target) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const entry, find(target));
  if (entry->busy > 0) {
    co_return fail(Errc::busy, "{}: {} chunks of target {} are being changed", dir(), entry->busy,
                   target);
  }
  entry->record.removing = true;  // hides the target from lookups
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::target, {target}), .body = encode(entry->record)});
  auto committed = co_await commit_rows(std::move(changes)).shielded();
  if (!committed) {
    entry->record.removing = false;
    co_return committed;
  }
  co_return co_await remove_chunks(target).shielded();
}

// Removes bounded numbers of chunks at a time, so that other tasks can run; the row of the target
// goes last.
Task<Result<void>> ChunkStore::remove_chunks(TargetId id) {
  Target& target = targets_.at(id);
  while (target.chunks.size() > 0) {
    std::vector<ChunkId> ids;
    auto at = target.chunks.first_from({});
    const ChunkId first = at->id;
    for (; at && ids.size() < kRemoveMax; at = target.chunks.first_from(next(at->id))) {
      ids.push_back(at->id);
    }
    RowChanges changes;
    changes.push_back({.key = key_of(RowKind::chunk, {id, first.inode, first.index}),
                       .body = std::nullopt,
                       .end = at ? key_of(RowKind::chunk, {id, at->id.inode, at->id.index})
                                 : key_of(RowKind::chunk, {id, UINT64_MAX, UINT64_MAX}) + '\0'});
    changes.push_back(erase_logged_rows(id, first, at ? std::optional(at->id) : std::nullopt));
    FF_CO_TRY(co_await commit_rows(std::move(changes)));
    for (const ChunkId& removed : ids) {
      target.tombstones.erase(removed);
      target.chunks.erase(removed);
    }
    changed_epoch_ = blocks_.epoch();
    changed_.set();
  }
  RowChanges changes;
  changes.push_back({.key = key_of(RowKind::result, {id}),
                     .body = std::nullopt,
                     .end = key_of(RowKind::result, {id, UINT64_MAX, UINT64_MAX}) + '\0'});
  changes.push_back({.key = key_of(RowKind::damage, {id}),
                     .body = std::nullopt,
                     .end = key_of(RowKind::damage, {id, UINT64_MAX, UINT64_MAX}) + '\0'});
  changes.push_back({.key = key_of(RowKind::target, {id}), .body = std::nullopt});
  FF_CO_TRY(co_await commit_rows(std::move(changes)));
  targets_.erase(id);
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

std::vector<TargetInfo> ChunkStore::targets() const {
  std::vector<TargetInfo> all;
  for (const auto& [id, target] : targets_) {
    if (target.record.removing) continue;
    const auto last = target.chunks.last_before({UINT64_MAX, UINT64_MAX});
    all.push_back({.id = id,
                   .chain = target.record.chain,
                   .state = target.record.state,
                   .power_lost = target.record.power_lost,
                   .chunks = target.chunks.size(),
                   .removed = target.tombstones.size(),
                   .bytes = target.bytes,
                   .last_inode = last ? last->id.inode : 0,
                   .damaged = target.damaged.size()});
  }
  return all;
}

// Channel results.

Result<std::optional<ChannelResult>> ChunkStore::channel_result(TargetId target, uint64_t client,
                                                                uint64_t channel) const {
  FF_TRY(const Target* const entry, find(target));
  const auto found = entry->channels.find({client, channel});
  if (found == entry->channels.end()) return std::optional<ChannelResult>();
  return std::optional(found->second);
}

Result<std::vector<ChannelInfo>> ChunkStore::channel_results(TargetId target) const {
  FF_TRY(const Target* const entry, find(target));
  std::vector<ChannelInfo> all;
  for (const auto& [channel, result] : entry->channels) {
    all.push_back({.client = channel.first, .channel = channel.second, .result = result});
  }
  return all;
}

Task<Result<void>> ChunkStore::install_channel_results(TargetId target,
                                                       std::vector<ChannelInfo> results) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const entry, find(target));
  RowChanges changes;
  for (const ChannelInfo& info : results) {
    changes.push_back({.key = key_of(RowKind::result, {target, info.client, info.channel}),
                       .body = encode(info.result)});
  }
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  for (const ChannelInfo& info : results)
    entry->channels[{info.client, info.channel}] = info.result;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> ChunkStore::clear_channel_results(TargetId target) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const entry, find(target));
  RowChanges changes;
  for (const auto& [channel, result] : entry->channels) {
    changes.push_back({.key = key_of(RowKind::result, {target, channel.first, channel.second}),
                       .body = std::nullopt});
  }
  if (changes.empty()) co_return Result<void>();
  entry->channels.clear();
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<bool>> ChunkStore::prune_results(int64_t now_ns) {
  FF_CO_TRY(health());
  RowChanges changes;
  std::vector<std::pair<TargetId, Channel>> channels;
  for (const auto& [id, target] : targets_) {
    for (const auto& [channel, result] : target.channels) {
      if (!result.committed || now_ns - result.used_ns < kRetentionNs) continue;
      if (target.busy_channels.contains(channel)) continue;
      if (channels.size() >= kRemoveMax) break;
      channels.push_back({id, channel});
      changes.push_back({.key = key_of(RowKind::result, {id, channel.first, channel.second}),
                         .body = std::nullopt});
    }
  }
  if (changes.empty()) co_return false;
  // At once: a step that begins now stores its own after this.
  for (const auto& [id, channel] : channels) targets_.at(id).channels.erase(channel);
  FF_CO_TRY(co_await commit_rows(std::move(changes)).shielded());
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return channels.size() >= kRemoveMax;
}

std::vector<ChunkId> ChunkStore::expired_tombstones(TargetId target, int64_t now_ns,
                                                    size_t limit) const {
  std::vector<ChunkId> old;
  const auto entry = find(target);
  if (!entry) return old;
  for (const ChunkId id : (*entry)->tombstones) {
    if (old.size() >= limit) break;
    if (now_ns - (*entry)->chunks.used().at(id).versions.removed_ns >= kRetentionNs) {
      old.push_back(id);
    }
  }
  return old;
}

Task<Result<void>> ChunkStore::prune_tombstones(TargetId target, std::vector<ChunkId> ids) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const entry, find(target));
  std::erase_if(ids, [&](const ChunkId id) {
    return !entry->tombstones.contains(id) || entry->chunks.find(id)->busy;
  });
  RowChanges changes;
  for (const ChunkId id : ids) {
    entry->chunks.find(id)->busy = true;
    ++entry->busy;
    changes.push_back(
        {.key = key_of(RowKind::chunk, {target, id.inode, id.index}), .body = std::nullopt});
  }
  if (changes.empty()) co_return Result<void>();
  const auto committed = co_await commit_rows(std::move(changes)).shielded();
  for (const ChunkId id : ids) {
    --entry->busy;
    entry->chunks.find(id)->busy = false;
    if (!committed) continue;
    entry->chunks.erase(id);
    entry->tombstones.erase(id);
  }
  if (!committed) co_return committed;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

}  // namespace ff::chunk
