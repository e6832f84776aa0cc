// store.cc: targets, the one way in which rows change, and the passes that make them durable.
//
// A pass ends an epoch: it syncs the data files, then erases, durably, the undo rows of the epochs
// up to that one. An undo row is what a chunk's row was before its first change in an epoch; it is
// written with that change. So after a loss of power each chunk that changed since the last pass
// has its undo rows, and opening the disk (store_open.cc) checks these chunks and takes back those
// whose bytes did not reach the disk. Blocks of older versions are kept for that as long.
#include "storage/chunk/store.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "storage/chunk/store_claim.h"

namespace ff::chunk {
namespace {

// A step is durable a second later, also when nobody asks for it.
constexpr int64_t kPassEveryNs = kSecond;

// Chunks or results that one transaction removes.
constexpr size_t kRemoveMax = 1000;

}  // namespace

Store::Store(StoreOptions options, Identity identity, std::unique_ptr<io::File> lock,
             Metadata metadata)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      lock_(std::move(lock)),
      metadata_(std::move(metadata)),
      queue_(options_.disk, options_.loop, options_.depth),
      blocks_(options_.disk, options_.dir, options_.direct, options_.paged_max, queue_),
      changed_(options_.loop),
      asked_(options_.loop),
      passed_(options_.loop),
      gate_(options_.loop) {}

Store::~Store() = default;

// Finding things.

Error Store::unknown_target(TargetId target) const {
  return fail(Errc::not_found, "{}: has no target {}", dir(), target);
}

Result<Store::Target*> Store::find(TargetId target) {
  const auto found = targets_.find(target);
  if (found == targets_.end() || found->second.record.removing) return unknown_target(target);
  return &found->second;
}

Result<const Store::Target*> Store::find(TargetId target) const {
  const auto found = targets_.find(target);
  if (found == targets_.end() || found->second.record.removing) return unknown_target(target);
  return &found->second;
}

const Store::Chunk* Store::find(const Target& target, ChunkId id) const {
  const auto found = target.chunks.find(id);
  if (found == target.chunks.end() || found->second.versions.absent()) return nullptr;
  return &found->second;
}

// For a change of the chunk, which need not be there.
Result<Store::Claim> Store::claim(TargetId target, ChunkId id) {
  FF_TRY(health());
  FF_TRY(Target* const of, find(target));
  Chunk& chunk = of->chunks[id];
  if (chunk.busy) {
    return fail(Errc::busy, "{}: chunk {} of target {} is being changed", dir(), to_string(id),
                target);
  }
  return Claim(target, *of, id, chunk);
}

// Changing rows.

Result<void> Store::health() const {
  if (!failure_) return {};
  return *failure_;
}

// Keeps the error of the disk, if it is one: a full disk works, and so does one that was asked for
// nonsense.
Error Store::failed(Error error) {
  if (!failure_ && error.code != Errc::disk_full) {
    failure_ = fail(Errc::failed, "disk {} has failed: {}", dir(), error.message);
    failure_->hint = "Its targets go on elsewhere: replace the disk.";
  }
  return error;
}

Task<Result<void>> Store::commit_rows(RowChanges changes) {
  auto committed = co_await committer_->commit(std::move(changes));
  if (!committed) co_return failed(std::move(committed).error());
  co_return Result<void>();
}

// Makes `next` the chunk's versions, together with `more`. What it had is put aside in the same
// transaction, for the case that `next` is lost.
Task<Result<void>> Store::put(Claim& claim, Versions next, RowChanges more) {
  const uint64_t epoch = blocks_.epoch();
  Chunk& chunk = claim.chunk();
  const ChunkId id = claim.id();
  if (chunk.undo_epoch != epoch) {
    more.push_back({.key = key_of(Table::undo, {epoch, claim.target_id(), id.inode, id.index}),
                    .body = row_of(chunk.versions)});
  }
  std::optional<std::string> row;
  if (!next.absent()) row = row_of(next);
  more.push_back(
      {.key = key_of(Table::chunk, {claim.target_id(), id.inode, id.index}), .body = row});
  const bool renewed = !next.doubted() && claim.target().damaged.contains(id);
  if (renewed) more.push_back(damage_row(claim.target_id(), id, false));
  FF_CO_TRY(co_await commit_rows(std::move(more)));
  if (renewed) claim.target().damaged.erase(id);
  chunk.undo_epoch = epoch;
  note_tombstone(claim.target(), id, next);
  claim.target().bytes += next.committed.state.length - chunk.versions.committed.state.length;
  chunk.versions = std::move(next);
  changed_epoch_ = std::max(changed_epoch_, epoch);
  changed_.set();
  co_return Result<void>();
}

void Store::note_tombstone(Target& target, ChunkId id, const Versions& versions) {
  if (versions.committed.state.removed && !versions.pending) {
    target.tombstones.insert(id);
  } else {
    target.tombstones.erase(id);
  }
}

// Damage.

void Store::doubt(const Versions& versions) {
  versions.committed.set_doubted(true);
  if (versions.pending) versions.pending->image.set_doubted(true);
}

void Store::doubt(TargetId target, ChunkId id) {
  const auto of = find(target);
  if (!of) return;
  const Chunk* const chunk = find(**of, id);
  if (chunk == nullptr) return;
  doubt(chunk->versions);
  if (!chunk->versions.doubted() || !(*of)->damaged.insert(id).second) return;
  unnoted_.emplace_back(target, id);
  changed_.set();
}

Task<Result<bool>> Store::check(TargetId target, ChunkId id) {
  FF_CO_TRY(health());
  FF_CO_TRY(const Target* const before, std::as_const(*this).find(target));
  const Chunk* const chunk = find(*before, id);
  if (chunk == nullptr) co_return true;
  Image images[2];
  images[0] = chunk->versions.committed;
  if (chunk->versions.pending) images[1] = chunk->versions.pending->image;
  for (const Image& image : images) {
    auto checking = intact(image);
    auto sound = co_await std::move(checking);
    if (!sound) co_return failed(std::move(sound).error());
    if (!*sound) co_return false;
  }
  for (const Image& image : images) image.set_doubted(false);
  FF_CO_TRY(Target* const of, find(target));
  const Chunk* const now = find(*of, id);
  if (now != nullptr && now->versions.doubted()) co_return false;  // it has changed meanwhile
  if (of->damaged.erase(id) == 0) co_return true;
  RowChanges changes;
  changes.push_back(damage_row(target, id, false));
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  co_return true;
}

bool Store::doubted(TargetId target, ChunkId id) const {
  const auto of = find(target);
  return of && (*of)->damaged.contains(id);
}

std::vector<ChunkId> Store::damaged(TargetId target, ChunkId from, size_t limit) const {
  std::vector<ChunkId> ids;
  const auto of = find(target);
  if (!of) return ids;
  for (auto at = (*of)->damaged.lower_bound(from); at != (*of)->damaged.end(); ++at) {
    if (ids.size() >= limit) break;
    ids.push_back(*at);
  }
  return ids;
}

// Making durable.

Task<Result<void>> Store::pass() {
  const uint64_t ended = blocks_.end_epoch();
  auto synced = co_await blocks_.sync();
  if (!synced) co_return failed(std::move(synced).error());
  RowChanges changes;
  changes.push_back({.key = key_of(Table::undo, {0}),
                     .body = std::nullopt,
                     .end = key_of(Table::undo, {ended + 1})});
  for (const auto& [target, id] : std::exchange(unnoted_, {})) {
    if (doubted(target, id)) changes.push_back(damage_row(target, id, true));
  }
  auto committed = co_await committer_->commit_durably(std::move(changes));
  if (!committed) co_return failed(std::move(committed).error());
  durable_epoch_ = ended;
  blocks_.settle(ended);
  co_return Result<void>();
}

Task<void> Store::run_passes() {
  Loop& loop = options_.loop;
  for (;;) {
    (void)co_await changed_.wait();
    (void)co_await asked_.wait(loop.now_ns() + kPassEveryNs);
    if (gate_.cancel().requested() || failure_) break;
    changed_.reset();
    asked_.reset();
    auto passing = pass();
    last_pass_ = co_await std::move(passing).shielded();
    if (!last_pass_) changed_.set();  // once more, after a second
    passed_.set();
    passed_.reset();
  }
  passed_.set();
}

Task<Result<void>> Store::sync() {
  const uint64_t wanted = changed_epoch_;
  while (durable_epoch_ < wanted) {
    FF_CO_TRY(health());
    asked_.set();
    FF_CO_TRY(co_await passed_.wait());
    if (durable_epoch_ < wanted && !last_pass_) co_return last_pass_;
  }
  co_return health();
}

Task<Result<void>> Store::close() {
  FF_CO_TRY(co_await sync());
  RowChanges changes;
  changes.push_back({.key = key_of(Table::disk, {}), .body = disk_row(true)});
  auto committed = co_await committer_->commit_durably(std::move(changes));
  Error closed = fail(Errc::interrupted, "{}: the store is closed", dir());
  co_await gate_.close(std::move(closed));
  if (!committed) co_return failed(std::move(committed).error());
  failure_ = fail(Errc::refused, "{}: the store is closed", dir());
  co_return Result<void>();
}

Task<Result<void>> Store::set_note(std::string note) {
  FF_CO_TRY(health());
  RowChanges changes;
  changes.push_back({.key = key_of(Table::note, {}), .body = note});
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  note_ = std::move(note);
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

// Targets.

Task<Result<void>> Store::create_target(TargetId target, uint64_t chain) {
  FF_CO_TRY(health());
  if (targets_.contains(target)) {
    co_return fail(Errc::exists, "{}: has target {} already", dir(), target);
  }
  const TargetRecord record{.chain = chain};
  RowChanges changes;
  changes.push_back({.key = key_of(Table::target, {target}), .body = encode(record)});
  targets_[target].record = {.chain = chain, .state = 0, .removing = true};  // not yet to be seen
  auto committing = commit_rows(std::move(changes));
  auto committed = co_await std::move(committing).shielded();
  if (!committed) {
    targets_.erase(target);
    co_return committed;
  }
  targets_[target].record = record;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> Store::set_target_state(TargetId target, uint64_t state) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const of, find(target));
  TargetRecord record = of->record;
  record.state = state;
  record.lossy = false;
  RowChanges changes;
  changes.push_back({.key = key_of(Table::target, {target}), .body = encode(record)});
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  of->record = record;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> Store::remove_target(TargetId target) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const of, find(target));
  if (of->busy > 0) {
    co_return fail(Errc::busy, "{}: {} chunks of target {} are being changed", dir(), of->busy,
                   target);
  }
  of->record.removing = true;  // from now on it is not found
  RowChanges changes;
  changes.push_back({.key = key_of(Table::target, {target}), .body = encode(of->record)});
  auto committing = commit_rows(std::move(changes));
  auto committed = co_await std::move(committing).shielded();
  if (!committed) {
    of->record.removing = false;
    co_return committed;
  }
  auto removing = remove_chunks(target);
  co_return co_await std::move(removing).shielded();
}

// In steps, so that others get their turn; the target's row goes last.
Task<Result<void>> Store::remove_chunks(TargetId id) {
  Target& target = targets_.at(id);
  while (!target.chunks.empty()) {
    auto end = target.chunks.begin();
    for (size_t i = 0; i < kRemoveMax && end != target.chunks.end(); ++i) ++end;
    const ChunkId first = target.chunks.begin()->first;
    const bool last = end == target.chunks.end();
    RowChanges changes;
    changes.push_back(
        {.key = key_of(Table::chunk, {id, first.inode, first.index}),
         .body = std::nullopt,
         .end = last ? key_of(Table::chunk, {id, UINT64_MAX, UINT64_MAX}) + '\0'
                     : key_of(Table::chunk, {id, end->first.inode, end->first.index})});
    FF_CO_TRY(co_await commit_rows(std::move(changes)));
    target.tombstones.erase(
        target.tombstones.begin(),
        last ? target.tombstones.end() : target.tombstones.lower_bound(end->first));
    target.chunks.erase(target.chunks.begin(), end);
    changed_epoch_ = blocks_.epoch();
    changed_.set();
  }
  RowChanges changes;
  changes.push_back({.key = key_of(Table::result, {id}),
                     .body = std::nullopt,
                     .end = key_of(Table::result, {id, UINT64_MAX, UINT64_MAX}) + '\0'});
  changes.push_back({.key = key_of(Table::damage, {id}),
                     .body = std::nullopt,
                     .end = key_of(Table::damage, {id, UINT64_MAX, UINT64_MAX}) + '\0'});
  changes.push_back({.key = key_of(Table::target, {id}), .body = std::nullopt});
  FF_CO_TRY(co_await commit_rows(std::move(changes)));
  targets_.erase(id);
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

std::vector<TargetInfo> Store::targets() const {
  std::vector<TargetInfo> all;
  for (const auto& [id, target] : targets_) {
    if (target.record.removing) continue;
    all.push_back({.id = id,
                   .chain = target.record.chain,
                   .state = target.record.state,
                   .lossy = target.record.lossy,
                   .chunks = target.chunks.size(),
                   .removed = target.tombstones.size(),
                   .bytes = target.bytes,
                   .last_inode = target.chunks.empty() ? 0 : target.chunks.rbegin()->first.inode,
                   .damaged = target.damaged.size()});
  }
  return all;
}

// Channel results.

Result<std::optional<ChannelResult>> Store::result(TargetId target, uint64_t client,
                                                   uint64_t channel) const {
  FF_TRY(const Target* const of, find(target));
  const auto found = of->channels.find({client, channel});
  if (found == of->channels.end()) return std::optional<ChannelResult>();
  return std::optional(found->second);
}

Result<std::vector<ChannelInfo>> Store::results(TargetId target) const {
  FF_TRY(const Target* const of, find(target));
  std::vector<ChannelInfo> all;
  for (const auto& [channel, result] : of->channels) {
    all.push_back({.client = channel.first, .channel = channel.second, .result = result});
  }
  return all;
}

Task<Result<void>> Store::install_results(TargetId target, std::vector<ChannelInfo> results) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const of, find(target));
  RowChanges changes;
  for (const ChannelInfo& info : results) {
    changes.push_back({.key = key_of(Table::result, {target, info.client, info.channel}),
                       .body = encode(info.result)});
  }
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  for (const ChannelInfo& info : results) of->channels[{info.client, info.channel}] = info.result;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<void>> Store::forget_results(TargetId target) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const of, find(target));
  RowChanges changes;
  for (const auto& [channel, result] : of->channels) {
    changes.push_back({.key = key_of(Table::result, {target, channel.first, channel.second}),
                       .body = std::nullopt});
  }
  if (changes.empty()) co_return Result<void>();
  of->channels.clear();
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

Task<Result<bool>> Store::prune_results(int64_t now_ns) {
  FF_CO_TRY(health());
  RowChanges changes;
  std::vector<std::pair<TargetId, Channel>> channels;
  for (const auto& [id, target] : targets_) {
    for (const auto& [channel, result] : target.channels) {
      if (!result.committed || now_ns - result.used_ns < kKeptNs) continue;
      if (target.changing.contains(channel)) continue;
      if (channels.size() >= kRemoveMax) break;
      channels.push_back({id, channel});
      changes.push_back({.key = key_of(Table::result, {id, channel.first, channel.second}),
                         .body = std::nullopt});
    }
  }
  if (changes.empty()) co_return false;
  // At once: a step that begins now stores its own after this.
  for (const auto& [id, channel] : channels) targets_.at(id).channels.erase(channel);
  auto committing = commit_rows(std::move(changes));
  FF_CO_TRY(co_await std::move(committing).shielded());
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return channels.size() >= kRemoveMax;
}

std::vector<ChunkId> Store::old_tombstones(TargetId target, int64_t now_ns, size_t limit) const {
  std::vector<ChunkId> old;
  const auto of = find(target);
  if (!of) return old;
  for (const ChunkId id : (*of)->tombstones) {
    if (old.size() >= limit) break;
    if (now_ns - (*of)->chunks.at(id).versions.removed_ns >= kKeptNs) old.push_back(id);
  }
  return old;
}

Task<Result<void>> Store::prune_tombstones(TargetId target, std::vector<ChunkId> ids) {
  FF_CO_TRY(health());
  FF_CO_TRY(Target* const of, find(target));
  std::erase_if(ids, [&](const ChunkId id) {
    return !of->tombstones.contains(id) || of->chunks.at(id).busy;
  });
  RowChanges changes;
  for (const ChunkId id : ids) {
    of->chunks.at(id).busy = true;
    ++of->busy;
    changes.push_back(
        {.key = key_of(Table::chunk, {target, id.inode, id.index}), .body = std::nullopt});
  }
  if (changes.empty()) co_return Result<void>();
  auto committing = commit_rows(std::move(changes));
  const auto committed = co_await std::move(committing).shielded();
  for (const ChunkId id : ids) {
    --of->busy;
    of->chunks.at(id).busy = false;
    if (!committed) continue;
    of->chunks.erase(id);
    of->tombstones.erase(id);
  }
  if (!committed) co_return committed;
  changed_epoch_ = blocks_.epoch();
  changed_.set();
  co_return Result<void>();
}

}  // namespace ff::chunk
