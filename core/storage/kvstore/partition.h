// One partition that this process owns: its index, its segments, and what writes to them.
//
// Changes wait in a queue; one task takes all that have come, writes them with one write, checks
// the claim (claim.h), and only then changes the index, so that reads see acknowledged changes
// only. After a failed write the segment gets no more records: the next one says in its header how
// many bytes of it are valid. Nothing is ever written twice at one place.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/io/async.h"
#include "storage/kvstore/calls.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/key_table.h"
#include "storage/kvstore/segment.h"

namespace ff::kvstore {

struct StoreMetrics {
  explicit StoreMetrics(Metrics& metrics);
  Counter& reads;
  Counter& read_bytes;
  Counter& changes;
  Counter& commits;
  Counter& commit_bytes;
  Counter& commit_errors;
  Counter& fenced;
  Counter& claims;
  Counter& given;
  Counter& evicted;
  Counter& expired;
  Counter& compacted;
  Counter& compacted_bytes;
  Counter& damaged;
  Histogram& commit_seconds;
  Gauge& partitions;
  Gauge& keys;
  Gauge& live_bytes;
  Gauge& file_bytes;
  Gauge& index_bytes;
};

// What the partitions of a store share.
struct StoreContext {
  io::Disk& disk;
  io::AsyncQueue& queue;
  Loop& loop;
  Rng& rng;
  const Options options;
  const std::string secret;
  const uint32_t partitions;
  StoreMetrics metrics;
  std::vector<std::string> damage = {};

  void note_damage(std::string sentence);
};

class Partition {
 public:
  // `claims` has claimed the partition. Reads all segments and writes the base.
  static Task<Result<std::shared_ptr<Partition>>> open(StoreContext& store, uint32_t number,
                                                       std::shared_ptr<ClaimFolder> claims);
  Partition(StoreContext& store, uint32_t number, std::shared_ptr<ClaimFolder> claims);

  // Writes changes until stop() or lose(); spawn it once.
  static Task<void> run(std::shared_ptr<Partition> self);
  // Writes what is queued, then ends run().
  Task<void> stop();
  // Another process owns the partition: all calls fail from now on.
  void lose();
  bool lost() const { return lost_; }
  ClaimFolder& claims() { return *claims_; }
  // Until when reads are served without a new heartbeat; steady time.
  void set_lease(int64_t until_ns) { lease_until_ns_ = until_ns; }
  Result<void> serving() const;

  Result<std::optional<KeyInfo>> find(std::string_view key);
  Task<Result<std::optional<Entry>>> get(std::string key);
  Result<std::optional<KeyInfo>> find_part(std::string_view name);
  Task<Result<std::optional<Entry>>> get_part(std::string name);
  Result<std::optional<KeyInfo>> find_owner(std::string_view key);
  Task<Result<std::optional<Entry>>> get_owner(std::string key);
  Task<Result<std::vector<Leftover>>> leftovers(size_t limit);
  Task<Result<Applied>> apply(std::vector<Change> changes, std::vector<Precondition> guards);
  Task<Result<RecordReservation>> reserve(std::string key, uint64_t value_bytes,
                                          int64_t expires_ms);
  Task<Result<Applied>> confirm(std::string key, RecordReservation reservation);
  Task<Result<ScanPage>> scan(uint64_t cursor, size_t limit);
  Task<Result<void>> clear();
  Counts counts() const;

  // Expiry, footers, compaction: as much as is due.
  Task<void> maintain();
  // Footers for all segments, so that the next owner opens the partition soon. After stop().
  Task<void> seal_all();
  // Likewise, while changes go on, so that seal_all() has little to do.
  Task<void> seal_ahead();

 private:
  struct Guard {
    KeyHash hash = {};
    uint64_t version = 0;
  };
  // One record to write.
  struct Step {
    RecordKind kind = RecordKind::put;
    RecordRole role = RecordRole::plain;
    KeyHash hash = {};
    std::string key = {};
    std::string value = {};
    int64_t expires_ms = 0;
    RecordRange reserved = {};  // where the record lies; of no length: it is to be written here
    // Of a copy by compaction: the record that it replaces, if the index still points there.
    uint64_t version = 0;  // 0: no copy
    uint32_t from_segment = 0;
    uint64_t from_offset = 0;
  };
  // What one call wants to change, and its result.
  enum class GroupKind : uint8_t {
    change,   // its steps
    reserve,  // a range for the record of its only step, which another process writes
    confirm,  // that this record counts
  };
  struct Group {
    explicit Group(Loop& loop) : done(loop) {}
    GroupKind kind = GroupKind::change;
    RecordReservation reservation = {};
    std::vector<Step> steps;
    std::vector<Guard> guards;
    std::vector<Guard> read_versions;  // of values that steps were made from
    bool outdated = false;             // one of those has changed: make the steps anew
    bool each_alone = false;           // steps are independent: removals of their own, copies
    Result<Applied> result = Applied{};
    Event done;
  };
  struct Staged {
    IndexedRecord record = {};
    bool reserved = false;  // in a range, so its offset is known
    bool copy = false;
    uint32_t from_segment = 0;
    uint64_t from_offset = 0;
  };
  // A range that a process may confirm: as long as its segment gets records, and the key has not
  // changed since.
  struct ReservedRange {
    RecordRange range = {};
    uint64_t version = 0;
    int64_t expires_ms = 0;
  };
  // A batch of groups of one kind on its way to the disk.
  struct Batch {
    GroupKind kind = GroupKind::change;
    uint64_t reserved = 0;  // bytes behind `bytes`, which others will write
    uint64_t pointers = 0;  // bytes of the pointers to these
    std::vector<std::shared_ptr<Group>> groups;
    std::string bytes;
    std::vector<Staged> staged;
    std::map<KeyHash, uint64_t> versions;  // after the batch, of keys that it changes; 0: missing
    int64_t growth = 0;                    // of the live bytes
  };

  // partition.cc
  Task<Result<void>> load();
  Task<Result<void>> load_segment(SegmentName name, uint64_t limit);
  void load_record(uint32_t segment, const IndexedRecord& record);
  void drop_needless_removals();
  Task<Result<std::string>> read_record(TableEntry entry, bool whole, bool expired_too);
  Task<Result<void>> read_key(TableEntry entry, std::optional<std::string>& key);
  bool expired(const TableEntry& entry) const;
  const TableEntry* visible(KeyHash hash) const;
  // Likewise, also if the key has expired.
  const TableEntry* present(KeyHash hash) const;
  static std::optional<KeyInfo> info_of(const TableEntry* entry);
  KeyHash hash_of(const Change& change) const;
  Task<Result<std::optional<Entry>>> read_entry(KeyHash hash, std::string key, bool expired_too);
  Task<Result<void>> read_leftover(KeyHash hash, std::vector<Leftover>& found);
  Error stale(std::string_view why) const;

  // partition_commit.cc
  Task<Result<void>> add_expiry(const Change& change, Group& group);
  Task<Result<std::shared_ptr<Group>>> make_group(std::vector<Change>& changes,
                                                  const std::vector<Precondition>& guards);
  Result<void> check_sizes(const std::vector<Change>& changes) const;
  Result<void> check_sizes(size_t key_bytes, uint64_t bytes) const;
  Task<void> submit(std::shared_ptr<Group> group);
  Task<void> commit_queued();
  Task<Result<void>> commit_batch(Batch& batch);
  Task<Result<void>> nothing_to_write();
  Task<Result<void>> write_batch(Batch& batch);
  Task<Result<void>> ensure_segment(uint64_t bytes);
  void encode(Group& group, Batch& batch);
  void encode_changes(Group& group, Batch& batch);
  bool make_room(Group& group, int64_t growth, Batch& batch);
  void encode_step(const Step& step, uint64_t version, bool more, Batch& batch);
  int64_t growth_by(const Step& step, const Batch& batch) const;
  Result<void> check_fixed(int64_t growth) const;
  void evict_for(int64_t growth, Batch& batch);
  const TableEntry* oldest_of_sample(const Batch& batch);
  uint64_t version_in(KeyHash hash, const Batch& batch) const;
  void apply_staged(const Staged& staged, uint64_t at);
  void retire();

  // partition_reserve.cc
  void add_range(Group& group, Batch& batch);
  void note_reserved(const Batch& batch, uint64_t at);
  const ReservedRange* find_reserved(KeyHash hash, const RecordReservation& wanted) const;
  void encode_confirmation(Group& group, Batch& batch);
  Result<void> check_room(const Batch& batch) const;

  // partition_compact.cc
  Task<void> expire_some();
  Task<void> seal_retired();
  std::optional<uint32_t> compaction_victim() const;
  bool bounds_another(const Segment& segment) const;
  Task<Result<void>> compact(uint32_t slot);
  Task<Result<bool>> copy_live(uint32_t slot, SegmentIndex& index);
  Task<Result<void>> submit_copies(std::vector<Step> steps);
  Task<Result<void>> sync_all();
  void forget_segment(uint32_t slot, const SegmentIndex& index);

  uint32_t add_segment(std::shared_ptr<Segment> segment);
  // The index points to the record of the entry from now on, or no longer.
  void count_live(const TableEntry& entry);
  void uncount_live(const TableEntry& entry);

  StoreContext& store_;
  const uint32_t number_;
  const std::shared_ptr<ClaimFolder> claims_;
  KeyTable table_;
  std::vector<std::shared_ptr<Segment>> segments_;  // by TableEntry::segment; null: free
  uint32_t active_ = TableEntry::kMaxSegments;      // gets records; kMaxSegments: none
  SegmentHead next_header_;                         // of the next segment
  std::multimap<KeyHash, ReservedRange> reserved_;  // of the active segment
  bool failed_write_ = false;  // and no segment since that says how many bytes were valid
  uint64_t next_version_ = 1;
  uint64_t keys_ = 0;
  uint64_t live_bytes_ = 0;   // of the records of these keys
  uint64_t fixed_bytes_ = 0;  // of those that cannot be evicted
  uint64_t expiry_cursor_ = 0;
  uint64_t leftover_cursor_ = 0;
  int64_t compact_after_ns_ = 0;
  int64_t lease_until_ns_ = 0;
  bool lost_ = false;
  bool stopping_ = false;
  std::deque<std::shared_ptr<Group>> queue_;
  Event work_;
  Event ended_;
  Semaphore committing_;   // one unit: a batch, or clear()
  Semaphore maintaining_;  // one unit: maintain(), clear(), seal_all() or seal_ahead()
};

}  // namespace ff::kvstore
