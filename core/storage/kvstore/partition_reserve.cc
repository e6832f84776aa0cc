// partition_reserve.cc: ranges for records that other processes write (calls.h). A header in front
// of a range lets scans skip it. When its writer says that the record is there, a pointer to it is
// committed like any change; before that, nothing refers to the range. A pointer lies in the
// segment of its record, so that both are copied and removed together: when the segment gets no
// more records, what is not confirmed can no longer be.
#include <algorithm>
#include <utility>

#include "storage/kvstore/partition.h"

namespace ff::kvstore {

Task<Result<RecordReservation>> Partition::reserve(std::string key, uint64_t value_bytes,
                                                   int64_t expires_ms) {
  FF_CO_TRY(serving());
  FF_CO_TRY(check_sizes(key.size(), value_bytes));
  const uint64_t length = record_bytes(key.size(), value_bytes);
  const uint64_t pointer = padded(record_bytes(key.size(), kPointerBytes));
  const uint64_t most = store_.options.segment_bytes - kSegmentHeader - kRecordHeader;
  if (padded(length) + pointer > most) {
    co_return fail(Errc::usage, "a value of {} bytes; a segment has room for {}", value_bytes,
                   most);
  }
  const auto group = std::make_shared<Group>(store_.loop);
  group->kind = GroupKind::reserve;
  group->reservation.expires_ms = expires_ms;
  group->reservation.durable = store_.options.durable;
  Step step{.hash = hash_key(store_.secret, key), .expires_ms = expires_ms};
  step.key = std::move(key);
  step.reserved.length = length;
  group->steps.push_back(std::move(step));
  co_await submit(group);
  FF_CO_TRY(std::move(group->result));
  co_return group->reservation;
}

Task<Result<Applied>> Partition::confirm(std::string key, RecordReservation reservation) {
  FF_CO_TRY(serving());
  const auto group = std::make_shared<Group>(store_.loop);
  group->kind = GroupKind::confirm;
  group->reservation = reservation;
  Step step{.hash = hash_key(store_.secret, key)};
  step.key = std::move(key);
  group->steps.push_back(std::move(step));
  co_await submit(group);
  co_return std::move(group->result);
}

// The reservation gets its offset in the ranges of the batch.
void Partition::add_range(Group& group, Batch& batch) {
  const Step& step = group.steps.front();
  group.reservation.offset = batch.reserved;
  group.reservation.version = next_version_++;
  batch.reserved += padded(step.reserved.length);
  batch.pointers += padded(record_bytes(step.key.size(), kPointerBytes));
}

// `at`: where the ranges of the batch begin.
void Partition::note_reserved(const Batch& batch, uint64_t at) {
  const SegmentName& segment = segments_[active_]->name;
  for (const auto& group : batch.groups) {
    RecordReservation& reservation = group->reservation;
    reservation.segment_epoch = segment.epoch;
    reservation.segment_number = segment.number;
    reservation.offset += at;
    const Step& step = group->steps.front();
    ReservedRange reserved{.version = reservation.version, .expires_ms = reservation.expires_ms};
    reserved.range = {.offset = reservation.offset, .length = step.reserved.length};
    reserved_.emplace(step.hash, reserved);
  }
}

const Partition::ReservedRange* Partition::find_reserved(KeyHash hash,
                                                         const RecordReservation& wanted) const {
  const SegmentName name{.epoch = wanted.segment_epoch, .number = wanted.segment_number};
  if (active_ == TableEntry::kMaxSegments || segments_[active_]->name != name) return nullptr;
  const auto [begin, end] = reserved_.equal_range(hash);
  const auto found = std::find_if(
      begin, end, [&](const auto& one) { return one.second.range.offset == wanted.offset; });
  return found == end ? nullptr : &found->second;
}

// Not done: the range is not reserved any more, or the key has parts, which somebody must remove.
void Partition::encode_confirmation(Group& group, Batch& batch) {
  Step& step = group.steps.front();
  const ReservedRange* const reserved = find_reserved(step.hash, group.reservation);
  if (reserved == nullptr || batch.versions.contains(step.hash)) return;
  const TableEntry* const entry = present(step.hash);
  if (entry != nullptr && entry->role() == RecordRole::owner) return;
  const uint64_t pointer = padded(record_bytes(step.key.size(), kPointerBytes));
  const uint64_t end = segments_[active_]->end + batch.bytes.size();
  if (end + pointer > store_.options.segment_bytes) return;
  step.reserved = reserved->range;
  step.expires_ms = reserved->expires_ms;
  // The key itself is not evicted: its removal would be newer than the reservation.
  const int64_t growth = growth_by(step, batch);
  batch.versions[step.hash] = reserved->version;
  const bool fits = make_room(group, growth, batch);
  batch.versions.erase(step.hash);
  if (!fits) return;
  encode_step(step, reserved->version, false, batch);
  group.result = Applied{.done = true, .version = reserved->version};
}

// Removals of evicted keys may have taken the room for pointers.
Result<void> Partition::check_room(const Batch& batch) const {
  const uint64_t end = segments_[active_]->end + batch.bytes.size();
  if (end <= store_.options.segment_bytes) return {};
  return fail(Errc::busy, "partition {}: its segment has become full: reserve again", number_);
}

}  // namespace ff::kvstore
