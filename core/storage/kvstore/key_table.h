// The index of a partition: for each key, by its hash, where its newest record is. Entries are
// sorted by hash in one array with gaps (linear probing from the place that the hash points to), so
// a scan in the order of hashes goes on where it was, however the table has grown meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/kvstore/record.h"

namespace ff::kvstore {

// A removed key stays as long as a put of it is in some segment: otherwise it would come back.
struct TableEntry {
  static constexpr uint32_t kMaxDead = 255;
  static constexpr uint32_t kMaxSegments = uint32_t{1} << 22;

  KeyHash hash = {};
  uint64_t version = 0;  // 0: a gap
  int64_t expires_ms = 0;
  uint32_t offset8 = 0;  // of the record, / 8
  uint32_t length = 0;   // of the record
  uint32_t segment : 22 = 0;
  uint32_t role_bits : 2 = 0;  // RecordRole
  // Puts of this key in segments besides the record itself. At kMaxDead it is not exact and stays.
  uint32_t dead : 8 = 0;
  uint16_t key_bytes : 15 = 0;
  uint16_t removed : 1 = 0;
  uint16_t used = 0;  // the clock of the table at the last use

  RecordRole role() const { return static_cast<RecordRole>(role_bits); }
  uint64_t offset() const { return uint64_t{offset8} * kRecordAlign; }
  void set_record(uint32_t in_segment, const IndexedRecord& record);
  bool is_at(uint32_t in_segment, uint64_t at) const {
    return segment == in_segment && offset() == at;
  }
  void add_dead() {
    if (dead < kMaxDead) dead = dead + 1;
  }
};
static_assert(sizeof(TableEntry) == 48);

class KeyTable {
 public:
  KeyTable() : slots_(kSlack + kSmallest), capacity_(kSmallest) {}

  TableEntry* find(KeyHash hash);
  const TableEntry* find(KeyHash hash) const;
  void prefetch(KeyHash hash) const { __builtin_prefetch(&slots_[home(hash)]); }
  // The entry of the hash; a new one has version 0 and must get its record before the next call.
  // Invalidates pointers.
  TableEntry& insert(KeyHash hash);
  void erase(KeyHash hash);  // of an entry that exists; invalidates pointers
  // The first entry with hash.high >= `high`; null: none.
  const TableEntry* from(uint64_t high) const;
  const TableEntry* next(const TableEntry* entry) const;  // null: none

  size_t size() const { return size_; }  // with removed keys
  uint64_t memory_bytes() const { return slots_.capacity() * sizeof(TableEntry); }

  // Least recently used, approximately: the clock advances once in so many uses that it goes round
  // only when each key could have been used 256 times.
  void use(TableEntry& entry) {
    if (++uses_ > size_ / 256) {
      ++clock_;
      uses_ = 0;
    }
    entry.used = clock_;
  }
  uint16_t age(const TableEntry& entry) const { return static_cast<uint16_t>(clock_ - entry.used); }

 private:
  static constexpr size_t kSmallest = 16;
  static constexpr size_t kSlack = 64;  // behind the last place that a hash points to

  size_t home(KeyHash hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash.high) * capacity_) >> 64);
  }
  size_t place(KeyHash hash) const;  // of the hash, or where it would be
  void grow();

  std::vector<TableEntry> slots_;
  size_t capacity_;
  size_t size_ = 0;
  uint64_t uses_ = 0;  // since the clock advanced
  uint16_t clock_ = 0;
};

}  // namespace ff::kvstore
