// partition_compact.cc: what is done in the background: expiry, footers, compaction.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/io/files.h"
#include "storage/kvstore/partition.h"

namespace ff::kvstore {

namespace {

constexpr size_t kExpiryEntries = 20'000;  // looked at in one turn of maintenance
constexpr uint64_t kCopyBytes = kMiB;      // of one group of copies
constexpr int64_t kRetryNs = 10 * kSecond;

}  // namespace

Task<void> Partition::maintain() {
  const auto permit = co_await maintaining_.acquire(1);
  if (!permit || lost_ || stopping_) co_return;
  co_await expire_some();
  co_await seal_retired();
  if (store_.loop.now_ns() < compact_after_ns_) co_return;
  for (auto victim = compaction_victim(); victim && !lost_; victim = compaction_victim()) {
    const auto compacted = co_await compact(*victim);
    if (compacted) continue;
    if (stopping_) break;
    if (segments_[*victim] != nullptr && compacted.error().code == Errc::corrupt) {
      segments_[*victim]->damaged = true;
      continue;
    }
    if (compacted.error().code == Errc::interrupted) break;
    log_warning("compaction failed",
                {{"partition", number_}, {"error", compacted.error().message}});
    compact_after_ns_ = store_.loop.now_ns() + kRetryNs;
    break;
  }
}

// Removes expired keys from the index and, with a record of removal, from the segments.
Task<void> Partition::expire_some() {
  auto group = std::make_shared<Group>(store_.loop);
  group->each_alone = true;
  const TableEntry* entry = table_.from(expiry_cursor_);
  for (size_t seen = 0; entry != nullptr && seen < kExpiryEntries; ++seen) {
    const bool plain = entry->role() == RecordRole::plain;
    if (plain && entry->removed == 0 && expired(*entry)) {
      group->steps.push_back({.kind = RecordKind::remove,
                              .hash = entry->hash,
                              .key = removal_key(entry->hash),
                              .version = entry->version,
                              .from_segment = entry->segment,
                              .from_offset = entry->offset()});
    }
    entry = table_.next(entry);
  }
  expiry_cursor_ = entry == nullptr ? 0 : entry->hash.high;
  if (group->steps.empty()) co_return;
  co_await submit(group);
  if (group->result) store_.metrics.expired.add(group->steps.size());
}

Task<void> Partition::seal_retired() {
  for (uint32_t slot = 0; slot < segments_.size(); ++slot) {
    const std::shared_ptr<Segment> segment = segments_[slot];
    if (segment == nullptr || slot == active_ || segment->sealed) continue;
    if (segment->bounded || segment->seal_tried || segment->damaged || segment->live_bytes == 0)
      continue;
    segment->seal_tried = true;
    const auto sealed = co_await seal_segment(store_.queue, store_.loop, *segment, store_.secret);
    if (!sealed && sealed.error().code == Errc::interrupted) {
      segment->seal_tried = false;
    } else if (!sealed) {
      log_warning("a segment has no footer", {{"error", sealed.error().message}});
    }
  }
}

Task<void> Partition::seal_all() {
  const auto permit = co_await maintaining_.acquire(1);
  if (!permit) co_return;
  retire();
  co_await seal_retired();
}

Task<void> Partition::seal_ahead() {
  const auto maintaining = co_await maintaining_.acquire(1);
  if (!maintaining) co_return;
  {
    const auto committing = co_await committing_.acquire(1);
    if (!committing || lost_ || stopping_) co_return;
    retire();
  }
  co_await seal_retired();
}

// Whether the header of this segment says where another one ends.
bool Partition::bounds_another(const Segment& segment) const {
  return std::any_of(segments_.begin(), segments_.end(), [&](const auto& other) {
    return other != nullptr && other->bounded && other->name.epoch == segment.name.epoch &&
           other->name.number + 1 == segment.name.number;
  });
}

// A bounded segment, or the one of which the least is in use, if that is less than half.
std::optional<uint32_t> Partition::compaction_victim() const {
  std::optional<uint32_t> victim;
  for (uint32_t slot = 0; slot < segments_.size(); ++slot) {
    const Segment* const segment = segments_[slot].get();
    if (segment == nullptr || slot == active_ || segment->damaged) continue;
    if (bounds_another(*segment)) continue;
    if (segment->bounded) return slot;
    if (segment->live_bytes * 2 >= segment->end - kSegmentHeader && segment->live_bytes > 0) {
      continue;
    }
    if (!victim || segment->live_bytes < segments_[*victim]->live_bytes) victim = slot;
  }
  return victim;
}

// The records that the index points to are copied, all segments become durable, and only then the
// file is removed, durably: the removals that hide its records may go after that.
Task<Result<void>> Partition::compact(uint32_t slot) {
  const std::shared_ptr<Segment> segment = segments_[slot];
  FF_CO_TRY(SegmentIndex index,
            co_await read_index(store_.queue, store_.loop, *segment, store_.secret, segment->end));
  if (!index.damage.empty() || index.end != segment->end) {
    co_return fail(Errc::corrupt, "{}: damaged records", segment->path);
  }
  FF_CO_TRY(const bool copied, co_await copy_live(slot, index));
  if (!copied || segment->live_bytes != 0) {
    co_return fail(Errc::corrupt, "{}: records that cannot be copied", segment->path);
  }
  FF_CO_TRY(co_await sync_all());
  auto owned = co_await claims_->check();
  if (!owned && owned.error().code == Errc::stale) lose();
  FF_CO_TRY(std::move(owned));
  auto removed = store_.disk.remove(segment->path);
  if (!removed && removed.error().code != Errc::not_found) co_return removed;
  FF_CO_TRY(store_.disk.sync_dir(claims_->dir()));
  forget_segment(slot, index);
  store_.metrics.compacted.add();
  co_return {};
}

// False: a record is damaged, so the segment must stay.
Task<Result<bool>> Partition::copy_live(uint32_t slot, SegmentIndex& index) {
  const std::shared_ptr<Segment> segment = segments_[slot];
  ScanWindow window(store_.queue, *segment->file, segment->end);
  // Records in reserved ranges lie before their pointers.
  std::sort(index.records.begin(), index.records.end(),
            [](const IndexedRecord& a, const IndexedRecord& b) { return a.offset < b.offset; });
  std::vector<Step> steps;
  uint64_t bytes = 0;
  for (const IndexedRecord& record : index.records) {
    const TableEntry* const entry = table_.find(record.hash);
    if (entry == nullptr || !entry->is_at(slot, record.offset)) continue;
    FF_CO_TRY(const bool there, co_await window.fill(record.offset, record.length));
    const ParsedRecord parsed = there ? parse_record(window.at(record.offset)) : ParsedRecord();
    if (parsed.state != ParsedRecord::State::whole || parsed.record.version != record.version) {
      store_.note_damage(
          fmt::format("{}: the record at {} is damaged", segment->path, record.offset));
      co_return false;
    }
    steps.push_back({.kind = record.kind,
                     .role = record.role,
                     .hash = record.hash,
                     .key = std::string(parsed.record.key),
                     .value = std::string(parsed.record.value),
                     .expires_ms = record.expires_ms,
                     .version = record.version,
                     .from_segment = slot,
                     .from_offset = record.offset});
    bytes += padded(record.length);
    if (bytes < kCopyBytes) continue;
    FF_CO_TRY(co_await submit_copies(std::exchange(steps, std::vector<Step>())));
    store_.metrics.compacted_bytes.add(std::exchange(bytes, 0));
  }
  if (!steps.empty()) {
    FF_CO_TRY(co_await submit_copies(std::move(steps)));
  }
  store_.metrics.compacted_bytes.add(bytes);
  co_return true;
}

Task<Result<void>> Partition::submit_copies(std::vector<Step> steps) {
  auto group = std::make_shared<Group>(store_.loop);
  group->each_alone = true;
  group->steps = std::move(steps);
  co_await submit(group);
  FF_CO_TRY(std::move(group->result));
  co_return {};
}

Task<Result<void>> Partition::sync_all() {
  const auto segments = segments_;
  for (const auto& segment : segments) {
    if (segment == nullptr || segment->synced >= segment->end) continue;
    FF_CO_TRY(co_await sync_segment(store_.queue, *segment));
  }
  co_return {};
}

// The file is gone: its puts do not count any more, and removals that only hid them are needless.
void Partition::forget_segment(uint32_t slot, const SegmentIndex& index) {
  segments_[slot] = nullptr;
  for (const IndexedRecord& record : index.records) {
    if (record.kind != RecordKind::put) continue;
    TableEntry* const entry = table_.find(record.hash);
    if (entry == nullptr || entry->dead == 0 || entry->dead == TableEntry::kMaxDead) continue;
    entry->dead = entry->dead - 1;
    if (entry->removed == 0 || entry->dead != 0) continue;
    uncount_live(*entry);
    table_.erase(record.hash);
  }
}

// The base of this epoch is replaced by one without segments.
Task<Result<void>> Partition::clear() {
  FF_CO_TRY(serving());
  FF_CO_TRY(const auto maintaining, co_await maintaining_.acquire(1));
  FF_CO_TRY(const auto committing, co_await committing_.acquire(1));
  if (lost_ || stopping_) co_return stale("this process does not own it any more");
  const Base empty{.epoch = claims_->epoch(),
                   .next_version = next_version_,
                   .first_number = next_header_.number};
  FF_CO_TRY(claims_->write_base(empty));
  auto owned = co_await claims_->check();
  if (!owned && owned.error().code == Errc::stale) lose();
  FF_CO_TRY(std::move(owned));
  active_ = TableEntry::kMaxSegments;
  reserved_.clear();
  next_header_.previous = 0;
  const auto segments = std::exchange(segments_, {});
  table_ = KeyTable();
  keys_ = 0;
  live_bytes_ = fixed_bytes_ = 0;
  for (const auto& segment : segments) {
    if (segment == nullptr) continue;
    const auto removed = store_.disk.remove(segment->path);
    if (!removed) log_warning("an old segment stays", {{"error", removed.error().message}});
  }
  co_return {};
}

}  // namespace ff::kvstore
