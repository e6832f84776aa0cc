// key_table.cc: linear probing that keeps the order of hashes.
#include "storage/kvstore/key_table.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"

namespace ff::kvstore {

void TableEntry::set_record(uint32_t in_segment, const IndexedRecord& record) {
  version = record.version;
  expires_ms = record.expires_ms;
  offset8 = static_cast<uint32_t>(record.offset / kRecordAlign);
  length = record.length;
  segment = in_segment & (kMaxSegments - 1);
  role_bits = static_cast<uint32_t>(record.role) & 3;
  key_bytes = record.key_bytes & 0x7fff;
  removed = record.kind == RecordKind::remove ? 1 : 0;
}

size_t KeyTable::place(KeyHash hash) const {
  size_t at = home(hash);
  while (at < slots_.size() && slots_[at].version != 0 && slots_[at].hash < hash) ++at;
  return at;
}

const TableEntry* KeyTable::find(KeyHash hash) const {
  const size_t at = place(hash);
  if (at == slots_.size() || slots_[at].version == 0 || slots_[at].hash != hash) return nullptr;
  return &slots_[at];
}

TableEntry* KeyTable::find(KeyHash hash) {
  return const_cast<TableEntry*>(std::as_const(*this).find(hash));
}

TableEntry& KeyTable::insert(KeyHash hash) {
  for (;;) {
    const size_t at = place(hash);
    if (at < slots_.size() && slots_[at].version != 0 && slots_[at].hash == hash) return slots_[at];
    size_t gap = at;
    while (gap < slots_.size() && slots_[gap].version != 0) ++gap;
    if (gap == slots_.size() || size_ * 5 >= capacity_ * 4) {
      grow();
      continue;
    }
    for (; gap > at; --gap) slots_[gap] = slots_[gap - 1];
    slots_[at] = TableEntry{.hash = hash};
    ++size_;
    return slots_[at];
  }
}

void KeyTable::erase(KeyHash hash) {
  size_t at = place(hash);
  FF_CHECK(at < slots_.size() && slots_[at].version != 0 && slots_[at].hash == hash);
  while (at + 1 < slots_.size() && slots_[at + 1].version != 0 && home(slots_[at + 1].hash) <= at) {
    slots_[at] = slots_[at + 1];
    ++at;
  }
  slots_[at] = TableEntry{};
  --size_;
}

// The entries are in order already: each goes to the place that its hash points to, or behind the
// one before. Where the end is too short for a crowd, a larger table has room for it.
void KeyTable::grow() {
  for (size_t larger = capacity_ + capacity_ / 2;; larger += larger / 2) {
    capacity_ = larger;
    std::vector<TableEntry> slots(capacity_ + kSlack);
    size_t end = 0;
    bool fits = true;
    for (const TableEntry& entry : slots_) {
      if (entry.version == 0) continue;
      const size_t at = std::max(end, home(entry.hash));
      fits = at < slots.size();
      if (!fits) break;
      slots[at] = entry;
      end = at + 1;
    }
    if (!fits) continue;
    slots_ = std::move(slots);
    return;
  }
}

const TableEntry* KeyTable::from(uint64_t high) const {
  for (size_t at = home({high, 0}); at < slots_.size(); ++at) {
    if (slots_[at].version != 0 && slots_[at].hash.high >= high) return &slots_[at];
  }
  return nullptr;
}

const TableEntry* KeyTable::next(const TableEntry* entry) const {
  for (size_t at = static_cast<size_t>(entry - slots_.data()) + 1; at < slots_.size(); ++at) {
    if (slots_[at].version != 0) return &slots_[at];
  }
  return nullptr;
}

}  // namespace ff::kvstore
