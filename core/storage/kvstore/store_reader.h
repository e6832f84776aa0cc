// Reads a store of keys and values without owning it, beside its owners (store.h) and any number of
// other readers: nobody is asked, and nothing is written.
//
// What a reader sees, with a view that is at most Options::max_age_ns old when a call begins (0:
// made by that call):
// - every change that was acknowledged before the view was made; refresh() makes one of all
//   partitions now;
// - the changes of one apply() together or not at all; never a part of a value, and never the value
//   of another key;
// - maybe changes whose apply() is still under way, or has failed, by an error of the disk or
//   because its process had lost the partition. What has failed disappears again with the next
//   change of the partition, or when it has a new owner.
// Compaction and takeovers change nothing of that, but may make a call wait for files to be read.
//
// One loop uses a StoreReader. An index lies in memory, about 60 bytes a key, from the first call
// on that needs its partition. The folder belongs to the user of the owners, who alone may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/follower.h"
#include "storage/kvstore/store_settings.h"

namespace ff::kvstore {

class StoreReader {
 public:
  struct Options {
    int64_t max_age_ns = 0;
    // Of 2 MiB each, for reads of large values, if the disk has memory that it reads into best; 0:
    // such values are read to their places.
    size_t buffers = 0;
    // That look at the folders of partitions side by side, for disks where this takes long; 0: the
    // loop does, one after the other.
    size_t threads = 0;
  };
  // `disk` and `loop` outlive it. Errc::not_found: there is no store in the folder.
  static Result<std::unique_ptr<StoreReader>> open(io::Disk& disk, Loop& loop, std::string folder,
                                                   Options options);

  uint32_t partitions() const { return settings_.partitions; }
  uint32_t partition_of(std::string_view key) const {
    return partition_of_slot(redis_slot(key), settings_.partitions);
  }

  // No call may run when the reader is destroyed. Spans and keys must stay until a call has ended.
  Task<Result<void>> refresh();
  // The next call makes a view of the partition anew: this process has changed something there.
  void outdate(uint32_t partition);

  // By the index alone, in the order of the keys; missing: nullopt.
  using Infos = std::vector<std::optional<KeyInfo>>;
  Task<Result<Infos>> find_many(std::span<const std::string_view> keys);
  // Reads the value of each key to the front of its place, if it fits (KeyInfo::value_bytes); all
  // at once. One result for each key.
  using Reads = std::vector<Result<std::optional<KeyInfo>>>;
  Task<Result<Reads>> read_many(std::span<const std::string_view> keys,
                                std::span<const ByteSpan> places);

  // Where the owner of a partition says that clients reach it; empty: nobody owns it.
  Task<Result<std::string>> owner(uint32_t partition);
  // Of the partitions that were used so far.
  Counts counts() const;

 private:
  StoreReader(io::Disk& disk, Loop& loop, std::string folder, Options options,
              StoreSettings settings, std::optional<io::Buffers> memory);
  Task<Result<std::vector<uint32_t>>> prepare(std::span<const std::string_view> keys);
  Task<void> read_one(uint32_t partition, std::string_view key, ByteSpan place,
                      Result<std::optional<KeyInfo>>& result);

  const Options options_;
  const StoreSettings settings_;
  Loop& loop_;
  io::AsyncQueue queue_;
  std::optional<TransferBuffers> buffers_;
  FollowerContext context_;
  StoreHeartbeats members_;
  std::vector<std::unique_ptr<Follower>> followers_;
  std::vector<int64_t> outdated_ns_;                    // views before do not count
  std::vector<std::unique_ptr<WorkerThread>> threads_;  // end before what they look at
};

}  // namespace ff::kvstore
