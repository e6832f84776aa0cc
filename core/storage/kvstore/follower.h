// One partition, as a process reads it that does not own it: the index from footers and records,
// and then, with each refresh(), what the owner has added since. Nobody knows of a follower, and it
// writes nothing.
//
// A refresh lists the folder, reads the newest base, and then the records that have come to the
// segments which are valid by it. The order matters: whatever the listing shows was done after
// the base that it shows was written, and after what is gone from the folder was copied to what is
// there. So:
// - compaction: a segment is gone. Its live records have been appended to others before, so the
//   refresh finds them there first, and then drops what the index still has of the segment. One
//   that goes meanwhile makes the refresh begin again;
// - takeover: there is a newer base. Bytes behind its limits do not count; if the index has
//   some of them, it is made anew;
// - a failed write: the header of the next segment is such a limit, too;
// - clear(): the base names no segment any more;
// - a write under way: a change counts when its last record is there (record.h); at the end of the
//   segment that gets records, a damaged one is looked at again with each refresh.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/base/worker_thread.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/kvstore/calls.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/key_table.h"
#include "storage/kvstore/segment.h"
#include "storage/kvstore/transfer_buffers.h"

namespace ff::kvstore {

// What the followers of a store share.
struct FollowerContext {
  io::Disk& disk;
  io::AsyncQueue& queue;
  Loop& loop;
  std::string secret = {};             // StoreSettings
  TransferBuffers* buffers = nullptr;  // null: values are read to where they belong
  // They look at the folders of partitions, which may block for long; none: the loop does.
  std::vector<WorkerThread*> threads = {};
};

class Follower {
 public:
  // `dir`: of the partition. The context outlives it.
  Follower(FollowerContext& store, uint32_t number, std::string dir);

  // Afterwards the index has all changes that were acknowledged before `since_ns` (steady time);
  // does nothing if a refresh that began later has ended. INT64_MAX: reads in any case. After an
  // error the index is what it was, or has more. Meanwhile it is as it was at some moment between.
  Task<Result<void>> refresh(int64_t since_ns);

  // By the index alone. Missing or expired, or a part: nullopt.
  std::optional<KeyInfo> find(KeyHash hash) const;
  // Soon, find() will be called.
  void prefetch(KeyHash hash) const { view_->table.prefetch(hash); }
  // Reads the value to the front of `into`, if it has room for KeyInfo::value_bytes. A record that
  // is not where the index has it is looked for again, after a refresh. Errc::corrupt: it is
  // damaged.
  Task<Result<std::optional<KeyInfo>>> read(KeyHash hash, std::string_view key, ByteSpan into);

  // The newest claim of the partition; Claim::member may be dead.
  Task<Result<Claim>> claim() { return claims_.newest(); }
  Counts counts() const;

 private:
  // A segment, and what the index has of it: the records up to Segment::end.
  struct Followed {
    Segment segment = {};
    std::optional<SegmentHead> header = {};
    uint64_t limit = UINT64_MAX;  // bytes behind it do not count
    bool finished = false;        // nothing will be added
    uint64_t entries = 0;         // of the index that point here
  };
  struct View {
    KeyTable table;
    std::vector<std::shared_ptr<Followed>> segments;  // by TableEntry::segment; null: gone
    std::map<SegmentName, uint32_t> slots;            // of those that are not gone
    uint64_t gone_entries = 0;                        // whose segment is gone
  };
  enum class Outcome : uint8_t {
    complete,
    again,    // a file went away meanwhile
    rebuild,  // the index has something that does not count
  };

  // The folder at one moment.
  struct FolderState {
    ClaimFolder::Listing listing = {};
    std::optional<Base> base = {};  // empty: nobody has owned the partition so far
    bool replaced = false;          // `base` is no longer there: look again
  };
  Result<FolderState> read_folder();
  Task<Result<FolderState>> look();
  Task<Result<Outcome>> follow(View& view);
  Task<Result<Outcome>> open_segment(View& view, SegmentName name, bool may_be_new);
  static void set_limits(View& view, const Base& base);
  static bool has_what_does_not_count(const View& view, const std::map<SegmentName, bool>& valid);
  Task<Result<Outcome>> catch_up(View& view, uint32_t slot);
  bool is_gone(const Followed& followed) const;
  static void apply_record(View& view, uint32_t slot, const IndexedRecord& record);
  static void drop_segments(View& view, const std::map<SegmentName, bool>& valid);
  static void sweep(View& view);
  const TableEntry* visible(const View& view, KeyHash hash) const;
  Task<Result<void>> read_value(std::shared_ptr<Followed> from, TableEntry entry,
                                std::string_view key, ByteSpan into);
  Task<Result<void>> read_apart(std::shared_ptr<Followed> from, TableEntry entry,
                                std::string_view key, ByteSpan into);
  Task<Result<void>> read_part(io::File& file, ByteSpan into, uint64_t offset);
  Result<void> check_record(const Followed& from, const TableEntry& entry, std::string_view key,
                            ByteView head, ByteView value, ByteSpan copy) const;

  FollowerContext& store_;
  const uint32_t number_;
  ClaimFolder claims_;
  ClaimFolder::OpenBase base_;  // that was read last; of look(), one at a time
  std::shared_ptr<View> view_;
  int64_t refreshed_ns_ = INT64_MIN;  // when the last refresh that succeeded began
  Semaphore refreshing_;
};

}  // namespace ff::kvstore
