// Reads of open files by threads that do not own the files (mount/fuse_worker.h).
//
// While storage has all bytes of an open file, and no others, its owner publishes what a read
// needs. It withdraws that before it acknowledges a change that the snapshot does not show: bytes
// in write-behind, a truncation. So a read that begins after such a change was acknowledged finds
// no snapshot, and asks the owner. Writes that storage has acknowledged need no withdrawal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::client {

struct ReadSnapshot {
  meta::InodeId inode = 0;
  uint64_t length = 0;  // at least so many bytes; the owner knows whether there are more
  uint64_t chunk_size = 0;
  std::vector<cluster::ChainId> chains = {};  // of the stripe
  std::string capability = {};
  int64_t until_ns = INT64_MAX;  // steady clock: from then on the owner renews the capability
  bool operator==(const ReadSnapshot&) const = default;
};
using ReadSnapshotRef = std::shared_ptr<const ReadSnapshot>;

// The published snapshots. Thread-safe; no lock is held longer than a look-up.
class ReadSnapshots {
 public:
  // Null: there is none.
  ReadSnapshotRef find(meta::InodeId inode) const;
  // Replaces an earlier one of the inode.
  void publish(ReadSnapshot snapshot);
  void withdraw(meta::InodeId inode);

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::unordered_map<meta::InodeId, ReadSnapshotRef> snapshots;
  };
  static constexpr size_t kShards = 64;
  Shard& shard(meta::InodeId inode) { return shards_[inode % kShards]; }
  const Shard& shard(meta::InodeId inode) const { return shards_[inode % kShards]; }

  std::array<Shard, kShards> shards_;
};

// Reads with a snapshot, on a loop of its own. An interface, so that workers run without a cluster
// (tests/storage/mount).
class SnapshotReader {
 public:
  virtual ~SnapshotReader() = default;

  // Like File::read(). Nothing: only the owner can answer, because the read goes past the length,
  // finds a hole, or needs a new capability.
  using Answer = std::optional<Result<uint64_t>>;
  virtual Task<Answer> read(ReadSnapshotRef snapshot, uint64_t offset, ByteSpan into) = 0;
  // The routing has changed.
  virtual void set_routing(const cluster::Routing& routing) = 0;
  virtual Task<void> close() = 0;
};

}  // namespace ff::client
