// partition_commit.cc: changes, in batches: one write for all that wait.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "platform/base/log.h"
#include "storage/kvstore/partition.h"

namespace ff::kvstore {

namespace {

constexpr uint64_t kBatchBytes = 4 * kMiB;
constexpr uint64_t kReservedBytes = 64 * kMiB;  // of one range, if several processes share it
constexpr int kEvictionSample = 16;
constexpr size_t kEvictionLook = 10'000;  // entries of the index, for one victim

// Of several changes of one key, what they come to: the last put or removal, with the expiry that
// was set after it.
std::vector<Change> last_changes(std::vector<Change> changes) {
  if (changes.size() < 2) return changes;
  std::unordered_map<std::string_view, size_t> last_keys, last_parts;
  std::vector<Change> kept;
  kept.reserve(changes.size());  // the map points to their keys
  for (Change& change : changes) {
    auto& last = is_part(change.role) ? last_parts : last_keys;
    const auto found = last.find(change.key);
    if (found == last.end()) {
      kept.push_back(std::move(change));
      last.emplace(kept.back().key, kept.size() - 1);
      continue;
    }
    Change& earlier = kept[found->second];
    if (change.kind != Change::Kind::expire) {
      earlier.kind = change.kind;
      earlier.role = change.role;
      earlier.value = std::move(change.value);
      earlier.expires_ms = change.expires_ms;
    } else if (earlier.kind != Change::Kind::remove) {
      earlier.expires_ms = change.expires_ms;
    }
  }
  return kept;
}

}  // namespace

Result<void> Partition::check_sizes(const std::vector<Change>& changes) const {
  uint64_t bytes = 0;
  size_t longest = 0;
  for (const Change& change : changes) {
    bytes += change.value.size();
    longest = std::max(longest, change.key.size());
  }
  return check_sizes(longest, bytes);
}

// Of a key, and of all values of a change.
Result<void> Partition::check_sizes(size_t key_bytes, uint64_t bytes) const {
  const Options& options = store_.options;
  if (key_bytes > kMaxKeyBytes) {
    return fail(Errc::usage, "a key of {} bytes; keys have at most {}", key_bytes, kMaxKeyBytes);
  }
  if (bytes > options.max_value_bytes) {
    return fail(Errc::usage, "values of {} bytes in one change; the store accepts at most {}",
                bytes, options.max_value_bytes);
  }
  if (options.max_bytes != 0 && bytes > options.max_bytes / store_.partitions) {
    return fail(Errc::usage, "values of {} bytes in one change; a partition holds at most {}",
                bytes, options.max_bytes / store_.partitions);
  }
  return {};
}

// A record has key, expiry and value: the expiry alone changes with a copy of the value.
Task<Result<void>> Partition::add_expiry(const Change& change, Group& group) {
  FF_CO_TRY(auto entry, co_await get(change.key));
  const KeyHash hash = hash_key(store_.secret, change.key);
  group.read_versions.push_back({.hash = hash, .version = entry ? entry->version : 0});
  if (!entry) co_return {};
  Step step{.role = entry->role, .hash = hash, .key = change.key, .expires_ms = change.expires_ms};
  step.value = std::move(entry->value);
  group.steps.push_back(std::move(step));
  co_return {};
}

Task<Result<std::shared_ptr<Partition::Group>>> Partition::make_group(
    std::vector<Change>& changes, const std::vector<Precondition>& guards) {
  const auto reads = [](const Change& change) { return change.kind == Change::Kind::expire; };
  const bool again = std::any_of(changes.begin(), changes.end(), reads);
  auto group = std::make_shared<Group>(store_.loop);
  for (const Precondition& guard : guards) {
    group->guards.push_back({.hash = hash_key(store_.secret, guard.key), .version = guard.version});
  }
  const int64_t now_ms = store_.loop.clock().wall_ns() / kMillisecond;
  for (Change& change : changes) {
    const bool over = change.expires_ms != 0 && change.expires_ms <= now_ms;
    if (change.kind == Change::Kind::remove || over) {
      group->steps.push_back({.kind = RecordKind::remove, .hash = hash_of(change)});
    } else if (change.kind == Change::Kind::put) {
      group->steps.push_back({.role = change.role,
                              .hash = hash_of(change),
                              .key = change.key,
                              .value = again ? change.value : std::move(change.value),
                              .expires_ms = change.expires_ms});
    } else {
      FF_CO_TRY(co_await add_expiry(change, *group));
    }
  }
  co_return group;
}

Task<Result<Applied>> Partition::apply(std::vector<Change> changes,
                                       std::vector<Precondition> guards) {
  FF_CO_TRY(check_sizes(changes));
  changes = last_changes(std::move(changes));
  for (;;) {
    FF_CO_TRY(serving());
    FF_CO_TRY(const auto group, co_await make_group(changes, guards));
    co_await submit(group);
    if (!group->outdated) co_return std::move(group->result);
  }
}

// The group may be written although the task that waits here is cancelled.
Task<void> Partition::submit(std::shared_ptr<Group> group) {
  if (lost_ || stopping_) {
    group->result = stale("this process does not own it any more");
    co_return;
  }
  queue_.push_back(group);
  work_.set();
  const auto waited = co_await group->done.wait();
  if (!waited) group->result = waited.error();
}

Task<void> Partition::run(std::shared_ptr<Partition> self) {
  Partition& me = *self;
  for (bool going = true; going;) {
    const auto woken = co_await me.work_.wait();
    me.work_.reset();
    while (woken && !me.queue_.empty() && !me.lost_) co_await me.commit_queued();
    going = woken && !me.lost_ && !me.stopping_;
  }
  me.lost_ = me.lost_ || !me.stopping_;
  me.stopping_ = true;
  for (const auto& group : me.queue_) {
    group->result = me.stale("this process does not own it any more");
    group->done.set();
  }
  me.queue_.clear();
  me.ended_.set();
}

Task<void> Partition::stop() {
  stopping_ = true;
  work_.set();
  (void)co_await wait_for(ended_).shielded();
}

Task<void> Partition::commit_queued() {
  auto permit = co_await committing_.acquire(1);
  if (!permit) {
    lose();
    co_return;
  }
  const int64_t began_ns = store_.loop.now_ns();
  Batch batch;
  batch.kind = queue_.front()->kind;
  while (!queue_.empty() && queue_.front()->kind == batch.kind &&
         batch.bytes.size() < kBatchBytes && batch.reserved < kReservedBytes) {
    batch.groups.push_back(std::move(queue_.front()));
    queue_.pop_front();
    encode(*batch.groups.back(), batch);
  }
  const auto written = co_await commit_batch(batch);
  if (!batch.bytes.empty()) {
    store_.metrics.commits.add();
    store_.metrics.commit_bytes.add(batch.bytes.size());
    store_.metrics.commit_seconds.observe_ns(store_.loop.now_ns() - began_ns);
  }
  if (!written) store_.metrics.commit_errors.add();
  for (const auto& group : batch.groups) {
    if (!written) {
      group->result = written.error();
      group->outdated = false;
    }
    group->done.set();
  }
}

Task<Result<void>> Partition::commit_batch(Batch& batch) {
  if (batch.reserved > 0) batch.bytes = reserved_header(kRecordHeader + batch.reserved);
  if (batch.bytes.empty()) co_return co_await nothing_to_write();
  co_return co_await write_batch(batch);
}

// What the index says is an answer only while the lease lasts, and if no failed write can still
// turn out to have happened.
Task<Result<void>> Partition::nothing_to_write() {
  FF_CO_TRY(serving());
  if (!failed_write_) co_return {};
  FF_CO_TRY(co_await ensure_segment(0));
  co_return co_await claims_->check();
}

Task<Result<void>> Partition::write_batch(Batch& batch) {
  if (batch.kind == GroupKind::confirm) {
    FF_CO_TRY(check_room(batch));
  } else {
    FF_CO_TRY(co_await ensure_segment(batch.bytes.size() + batch.reserved + batch.pointers));
  }
  Segment& segment = *segments_[active_];
  const uint64_t at = segment.end;
  auto written = co_await store_.queue.write(*segment.file, as_bytes(batch.bytes), at);
  const bool durable = store_.options.durable && batch.kind != GroupKind::reserve;
  if (written && durable) {
    written = co_await store_.queue.sync(*segment.file);
    segment.sync_failed = !written;
  }
  if (written) written = co_await claims_->check();
  if (!written && written.error().code == Errc::stale) {
    lose();
    co_return stale("another process has claimed it");
  }
  if (!written) {
    segment.bounded = true;
    failed_write_ = true;
    retire();
    co_return written;
  }
  segment.end += batch.bytes.size() + batch.reserved;
  if (durable) segment.synced = segment.end;
  for (const Staged& staged : batch.staged) apply_staged(staged, at);
  if (batch.kind == GroupKind::reserve) note_reserved(batch, at + kRecordHeader);
  co_return {};
}

// No more records for the active segment.
void Partition::retire() {
  if (active_ == TableEntry::kMaxSegments) return;
  const Segment& segment = *segments_[active_];
  next_header_.previous = segment.name.number;
  next_header_.previous_end = segment.end;
  active_ = TableEntry::kMaxSegments;
  reserved_.clear();
}

Task<Result<void>> Partition::ensure_segment(uint64_t bytes) {
  const uint64_t most = store_.options.segment_bytes;
  if (active_ != TableEntry::kMaxSegments) {
    const Segment& segment = *segments_[active_];
    if (segment.end + bytes <= most) co_return {};
    retire();
  }
  const uint64_t size = std::max(most, kSegmentHeader + bytes);
  FF_CO_TRY(auto made,
            co_await create_segment(store_.disk, store_.queue, claims_->dir(), next_header_, size));
  ++next_header_.number;
  failed_write_ = false;
  active_ = add_segment(std::move(made));
  co_return {};
}

// The version of the key after the batch; 0: missing.
uint64_t Partition::version_in(KeyHash hash, const Batch& batch) const {
  if (const auto found = batch.versions.find(hash); found != batch.versions.end()) {
    return found->second;
  }
  const TableEntry* const entry = visible(hash);
  return entry == nullptr ? 0 : entry->version;
}

// How much live bytes grow with the record.
int64_t Partition::growth_by(const Step& step, const Batch& batch) const {
  int64_t growth = 0;
  if (step.kind == RecordKind::put) {
    const uint64_t length = record_bytes(step.key.size(), step.value.size());
    growth = static_cast<int64_t>(padded(std::max(length, step.reserved.length)));
  }
  const TableEntry* const entry = table_.find(step.hash);
  if (entry == nullptr || entry->removed != 0 || batch.versions.contains(step.hash)) return growth;
  return growth - static_cast<int64_t>(padded(entry->length));
}

void Partition::encode(Group& group, Batch& batch) {
  if (group.kind == GroupKind::change) return encode_changes(group, batch);
  if (group.kind == GroupKind::confirm) return encode_confirmation(group, batch);
  add_range(group, batch);
}

void Partition::encode_changes(Group& group, Batch& batch) {
  const auto holds = [&](const Guard& guard) {
    return version_in(guard.hash, batch) == guard.version;
  };
  if (!std::all_of(group.guards.begin(), group.guards.end(), holds)) return;
  if (!std::all_of(group.read_versions.begin(), group.read_versions.end(), holds)) {
    group.outdated = true;
    return;
  }
  std::vector<const Step*> steps;
  int64_t growth = 0;
  for (const Step& step : group.steps) {
    if (step.version != 0) {  // a copy: only if the index still points to what was copied
      const TableEntry* const entry = table_.find(step.hash);
      if (batch.versions.contains(step.hash) || entry == nullptr) continue;
      if (!entry->is_at(step.from_segment, step.from_offset)) continue;
    } else if (step.kind == RecordKind::remove && version_in(step.hash, batch) == 0) {
      // An owner that has expired is still there.
      const TableEntry* const entry = present(step.hash);
      if (entry == nullptr || entry->role() != RecordRole::owner) continue;
      if (batch.versions.contains(step.hash)) continue;
    }
    steps.push_back(&step);
    growth += growth_by(step, batch);
  }
  if (!group.each_alone && !make_room(group, growth, batch)) return;
  const uint64_t version = next_version_++;
  for (const Step* step : steps) {
    const bool more = step != steps.back() && !group.each_alone;
    encode_step(*step, step->version != 0 ? step->version : version, more, batch);
  }
  group.result = Applied{.done = true, .version = version};
}

// False: there is none, as the result of the group says.
bool Partition::make_room(Group& group, int64_t growth, Batch& batch) {
  if (store_.options.max_bytes == 0) return true;
  if (auto fits = check_fixed(growth); !fits) {
    group.result = std::move(fits).error();
    return false;
  }
  evict_for(growth, batch);
  return true;
}

void Partition::encode_step(const Step& step, uint64_t version, bool more, Batch& batch) {
  const bool put = step.kind == RecordKind::put;
  const bool pointer = step.reserved.length != 0;
  RecordView record{.kind = pointer ? RecordKind::pointer : step.kind,
                    .more = more,
                    .role = step.role,
                    .version = version,
                    .expires_ms = step.expires_ms};
  const std::string removed = put ? std::string() : removal_key(step.hash);
  record.key = put ? step.key : removed;
  const std::string range = pointer ? encode_pointer(step.reserved) : std::string();
  record.value = pointer ? range : step.value;
  const uint64_t length =
      pointer ? step.reserved.length : record_bytes(record.key.size(), record.value.size());
  const uint64_t offset = batch.bytes.size();
  batch.growth += growth_by(step, batch);
  append_record(batch.bytes, record);
  batch.staged.push_back({.record = {.hash = step.hash,
                                     .version = version,
                                     .expires_ms = step.expires_ms,
                                     .offset = pointer ? step.reserved.offset : offset,
                                     .length = static_cast<uint32_t>(length),
                                     .key_bytes = static_cast<uint16_t>(record.key.size()),
                                     .kind = step.kind,
                                     .role = step.role},
                          .reserved = pointer,
                          .copy = step.version != 0,
                          .from_segment = step.from_segment,
                          .from_offset = step.from_offset});
  batch.versions[step.hash] = put ? version : 0;
}

// What cannot be evicted may fill the store: then nothing that grows is accepted.
Result<void> Partition::check_fixed(int64_t growth) const {
  const uint64_t most = store_.options.max_bytes / store_.partitions;
  if (growth <= 0 || fixed_bytes_ + static_cast<uint64_t>(growth) <= most) return {};
  return fail(Errc::disk_full,
              "partition {}: values that cannot be evicted fill its share of the limit, {} bytes",
              number_, most);
}

// Removes the keys that were not used for the longest time, until there is room.
void Partition::evict_for(int64_t growth, Batch& batch) {
  const auto most = static_cast<int64_t>(store_.options.max_bytes / store_.partitions);
  while (static_cast<int64_t>(live_bytes_) + batch.growth + growth > most) {
    const TableEntry* const victim = oldest_of_sample(batch);
    if (victim == nullptr) return;
    const Step step{.kind = RecordKind::remove, .hash = victim->hash};
    encode_step(step, next_version_++, false, batch);
    store_.metrics.evicted.add();
  }
}

const TableEntry* Partition::oldest_of_sample(const Batch& batch) {
  const TableEntry* oldest = nullptr;
  const TableEntry* at = table_.from(store_.rng.next());
  int seen = 0;
  // Twice through the table at most, where nearly all is removed or cannot be evicted.
  const size_t most = std::min(2 * table_.size() + 2, kEvictionLook);
  for (size_t steps = 0; seen < kEvictionSample && steps < most; ++steps) {
    if (at == nullptr) at = table_.from(0);
    if (at == nullptr) return nullptr;
    const bool plain = at->removed == 0 && at->role() == RecordRole::plain;
    if (plain && !batch.versions.contains(at->hash)) {
      ++seen;
      if (oldest == nullptr || table_.age(*at) > table_.age(*oldest)) oldest = at;
    }
    at = table_.next(at);
  }
  return oldest;
}

void Partition::apply_staged(const Staged& staged, uint64_t at) {
  IndexedRecord record = staged.record;
  if (!staged.reserved) record.offset += at;
  if (!staged.copy) reserved_.erase(record.hash);
  if (staged.copy && table_.find(record.hash) == nullptr) return;
  TableEntry& entry = table_.insert(record.hash);
  if (entry.version != 0) {
    if (staged.copy && !entry.is_at(staged.from_segment, staged.from_offset)) {
      if (record.kind == RecordKind::put) entry.add_dead();
      return;
    }
    if (entry.removed == 0) entry.add_dead();
    uncount_live(entry);
  }
  const uint16_t used = entry.used;
  entry.set_record(active_, record);
  count_live(entry);
  if (staged.copy) {
    entry.used = used;
  } else {
    table_.use(entry);
    store_.metrics.changes.add();
  }
}

}  // namespace ff::kvstore
