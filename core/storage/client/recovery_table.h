// What a mount leaves for the process that continues it after it has died (mount/keeper.h): open
// handles, sessions, write-behind that is acknowledged and not stored, errors that an fsync(2)
// still has to report, and the changes under way at the metadata service. It lies in shared memory
// that outlives the process. A fixed number of records of one size; each is written before the
// operation that it covers is acknowledged.
//
// A process may be killed between any two instructions. The kind of a record is its commit word: it
// is stored last, after a checksum over all that is fixed. A record whose checksum does not match
// is dropped. What changes while the record exists are words of 8 bytes, each valid by itself.
//
// Owned by one loop.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

class RecoveryTable {
 public:
  // What a record is; the numbers are stored. In brackets: its fixed words; its live words; its
  // text.
  enum class Kind : uint32_t {
    none = 0,
    // `dirty`: 0: the servers know length and times; 1: neither; 2: the times. The directory is
    // that in which the session has created the file; 0: none.
    session = 1,    // [inode, number, directory] [dirty, end, written_ns, truncate_seq] proof
    holder = 2,     // [inode, number]
    buffer = 3,     // [inode, session, begin, location in the data memory] [size]
    handle = 4,     // [number, inode, flags, uid, origin] [seen, opened] proof
    directory = 5,  // [number, inode, parent, origin] [seen, opened] proof
    position = 6,   // [number, position] name of the entry before it
    error = 7,      // [inode, errno, code] [count, reported] message
    proof = 8,      // [inode] proof
    setting = 9,    // [uid, read_only, read_cache]
    // Of client/change_journal.h, in version 2.
    lease = 10,   // [lease] [last applied change]
    change = 11,  // [number, part | parts << 32, origin, inodes...] part of its message
    // Of mount/ring_registry.h. Versions that do not know it drop it: their rings end.
    iov_dir = 12,  // [number, process, origin]
  };
  static constexpr size_t kFixedWords = 6;
  static constexpr size_t kLiveWords = 4;
  static constexpr size_t kTextMax = 276;

  // Shared memory for a mount with `data` bytes of data memory.
  static uint64_t bytes_for(uint64_t data);
  // `memory` is zero, or what a predecessor left; it outlives the table. Errc::unsupported: another
  // version wrote it.
  static Result<std::unique_ptr<RecoveryTable>> open(ByteSpan memory);

  // One record; the destructor frees it.
  class Record {
   public:
    Record() = default;
    Record(Record&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
    Record& operator=(Record&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Record() {
      if (table_ != nullptr) table_->free_record(index_);
    }
    explicit operator bool() const { return table_ != nullptr; }
    uint64_t fixed(size_t word) const;
    uint64_t live(size_t word) const;
    void set_live(size_t word, uint64_t value);
    std::string_view text() const;
    // Ascending in the order of add().
    uint64_t order() const;

   private:
    friend class RecoveryTable;
    Record(RecoveryTable& table, uint32_t index) : table_(&table), index_(index) {}
    RecoveryTable* table_ = nullptr;
    uint32_t index_ = 0;
  };
  struct Content {
    Kind kind = Kind::none;
    std::array<uint64_t, kFixedWords> fixed = {};
    std::array<uint64_t, kLiveWords> live = {};
    std::string_view text = {};
    uint64_t order = 0;  // 0: the next one
  };
  // An empty record: the table is full, or the text is too long.
  Record add(const Content& content);
  // The records of this kind that the predecessor left, in their order. Each is returned once.
  std::vector<Record> take(Kind kind);
  // Frees what the predecessor left and nobody has taken.
  void drop_untaken() { left_.clear(); }

  // Whether a predecessor has used the memory.
  bool continues() const { return continues_; }
  // Records that the predecessor was writing when it died, or that something has damaged.
  size_t torn() const { return torn_; }
  size_t capacity() const { return records_.size(); }
  size_t room() const { return records_.size() - used_; }  // records
  size_t used() const { return used_; }
  meta::MetaClientState& metadata();
  // The inode of the mounted directory, and its proof. Empty until set_root().
  uint64_t root() const;
  std::string_view root_proof() const;
  void set_root(uint64_t inode, std::string_view proof);

 private:
  struct Header;
  struct Entry;
  RecoveryTable(Header& header, std::span<Entry> records);
  static uint32_t checksum_of(const Entry& entry, Kind kind);
  void scan();
  void free_record(uint32_t index);

  Header& header_;
  const std::span<Entry> records_;
  std::vector<uint32_t> free_;
  std::vector<Record> left_;  // by the predecessor
  bool continues_ = false;
  size_t torn_ = 0;
  size_t used_ = 0;
};

}  // namespace ff::client
