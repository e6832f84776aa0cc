// The store of keys and values below `ff serve-kv`: files in one folder of any Disk (io/disk.h): a
// local folder, a cluster (client/cluster_disk.h), the simulated disk of tests.
//
// A key belongs to a slot, as in Redis Cluster, and a slot to a partition. Each partition has one
// writer at a time, its owner: a process whose Store has claimed it. A Store reads only what it
// owns; any process may read everything with a StoreReader (store_reader.h). Owners write a
// heartbeat; a Store that sees another one's heartbeat unchanged for Options::lease_ns of its own
// clock takes its partitions over. No synchronized clocks are needed, but clocks must run at about
// the same rate (25 %).
//
// With Options::share, all processes that have the store open have the same number of partitions,
// or one more (shares.h). One that joins gets its share from the others, some partitions at a time:
// an owner ends the changes under way and gives the partition up, and for less than a second nobody
// serves it. One that is slow keeps its share until it is taken for dead; when it comes back, it
// gets a share after half a minute of heartbeats.
//
// What holds, whichever process is killed, paused or cut off:
// - A change that apply() has acknowledged is not lost. With Options::durable, not by a power loss
//   either; without, a power loss (of the machine, or of all nodes of a chain) may lose the last
//   ones of each partition.
// - The changes of one apply() appear together or not at all.
// - A change whose apply() failed with an error of the disk is not visible until the partition is
//   opened again. Then it may have happened, as with any call whose reply is lost; but not if a
//   later apply() for the partition has succeeded meanwhile.
//
// Do not use a folder below a FUSE mount of several hosts: the kernel there may cache the marks by
// which a former owner learns that it has lost a partition. Give `ff://` paths to a ClusterDisk.
//
// One loop uses a Store. Data go through an AsyncQueue; changes of names (a new segment, a claim)
// block the loop for the time that the disk takes. All times of expiry are wall-clock milliseconds
// since the Unix epoch; 0: never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/io/disk.h"
#include "storage/kvstore/calls.h"

namespace ff::kvstore {

class Store {
 public:
  // Creates the folder, with missing parents, and the file `store` in it if they do not exist. With
  // Options::claim, returns after a first attempt to claim partitions: those that no live process
  // owns are served then; where other processes live, this one's share of them. All arguments
  // outlive the store. Errc::newer_format, Errc::corrupt: the file `store`.
  static Task<Result<std::unique_ptr<Store>>> open(io::Disk& disk, Loop& loop, Rng& rng,
                                                   Metrics& metrics, std::string folder,
                                                   Options options);
  // After close(), or after a failed open; without close() it is as if the process were killed.
  virtual ~Store() = default;
  // Ends changes under way, releases all partitions, so that others can claim them at once, and
  // ends the heartbeat. No call may be under way or follow.
  virtual Task<void> close() = 0;

  virtual uint32_t partitions() const = 0;
  virtual uint32_t partition_of(std::string_view key) const = 0;
  virtual uint32_t partition_of_part(std::string_view name) const = 0;
  // The slots of Redis Cluster of a partition: [first, last].
  struct SlotRange {
    uint32_t first = 0;
    uint32_t last = 0;
  };
  virtual SlotRange redis_slots(uint32_t partition) const = 0;
  // Whether this process serves the partition now.
  virtual bool owned(uint32_t partition) const = 0;
  // The address of the process that owns the partition, as far as this one knows (refreshed with
  // each heartbeat); empty: nobody.
  virtual std::string owner(uint32_t partition) const = 0;

  // Whether other processes that live own some of the partitions, as far as this one knows.
  virtual bool is_shared() const = 0;
  // How many partitions this process has lost, or given to others, so far.
  virtual uint64_t losses() const = 0;

  // Errors of all calls with keys. Errc::stale: this process does not own the partition, or not any
  // more (fenced); the message names the owner: ask there. Errc::usage: a key or a value is too
  // large, keys of one apply() are of several partitions. Errc::disk_full: the disk is full;
  // nothing has changed, reads go on; also
  // if what cannot be evicted fills Options::max_bytes. Errc::corrupt: the record of this key is
  // damaged. Any other: of the disk.

  // By the index alone. Missing or expired: nullopt.
  virtual Result<std::optional<KeyInfo>> find(std::string_view key) = 0;
  virtual Task<Result<std::optional<Entry>>> get(std::string key) = 0;
  // Likewise, of a part, by its name.
  virtual Result<std::optional<KeyInfo>> find_part(std::string_view name) = 0;
  virtual Task<Result<std::optional<Entry>>> get_part(std::string name) = 0;
  // Of a key that is an owner, also if it has expired; nullopt: it is none.
  virtual Result<std::optional<KeyInfo>> find_owner(std::string_view key) = 0;
  virtual Task<Result<std::optional<Entry>>> get_owner(std::string key) = 0;
  // One result for each key, in their order; reads at once. Keys may be of several partitions.
  virtual Task<std::vector<Result<std::optional<Entry>>>> get_many(
      std::vector<std::string> keys) = 0;
  // Atomic; all keys of one partition (those of one slot always are). Two changes of one key: the
  // later one counts. Changes that run at the same time share a write.
  virtual Task<Result<Applied>> apply(std::vector<Change> changes,
                                      std::vector<Precondition> preconditions) = 0;
  Task<Result<Applied>> apply(std::vector<Change> changes) {
    std::vector<Precondition> none;
    return apply(std::move(changes), std::move(none));
  }

  // Room for the value of a key, which the caller or another process writes with a
  // ReservationWriter (reservation_writer.h) instead of apply(). A later change of the key ends the
  // reservation, as does much else that is written to its partition meanwhile. Errc::usage also:
  // the value is too large for it.
  virtual Task<Result<RecordReservation>> reserve(std::string key, uint64_t value_bytes,
                                                  int64_t expires_ms) = 0;
  // The record of the reservation is written: the key has its value from now on, with the same
  // guarantees as after apply(). Not done: the reservation has ended, or the key is an owner. Then
  // nothing has changed.
  virtual Task<Result<Applied>> confirm(std::string key, RecordReservation reservation) = 0;

  using ScanPage = kvstore::ScanPage;
  // Keys of a partition in the order of their hashes, about `limit` of them from the cursor on (0:
  // from the start; any number is valid). Fewer where parts are many: then also none, and a cursor
  // for the next call. A key that exists during the whole scan is returned; no key is returned
  // twice.
  virtual Task<Result<ScanPage>> scan(uint32_t partition, uint64_t cursor, size_t limit) = 0;
  virtual Counts counts(uint32_t partition) const = 0;  // of an owned one, else zeros
  Counts counts() const;

  // Up to `limit` of the partition: each call goes on where the one before ended, so that many
  // calls find all of them. What the caller does not remove is found again.
  virtual Task<Result<std::vector<Leftover>>> leftovers(uint32_t partition, size_t limit) = 0;

  // Removes all keys of the partition, with their parts; frees their space.
  virtual Task<Result<void>> clear(uint32_t partition) = 0;

  // Damage that was found since open(): one sentence each, with file and offset; keys where known.
  virtual std::vector<std::string> damage() const = 0;
};

}  // namespace ff::kvstore
