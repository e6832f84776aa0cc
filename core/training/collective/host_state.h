// What one process knows about the ranks of its host: which rank it is, their process ids, the
// operation table, and the memory regions that they share. HostGroup offers it to the communicator;
// RankSockets fills it with what other ranks send.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "platform/net/shared_region.h"
#include "training/collective/operation_table.h"

namespace ff::collective {

struct HostRank {
  uint32_t rank = 0;        // local rank
  uint32_t ranks = 1;       // of this host
  uint32_t first_rank = 0;  // global rank of local rank 0
  bool has_peers = false;   // the job has ranks on other hosts
  // The same for all ranks of a job, and of no other job on this host: it names their socket.
  std::string job;
  int64_t join_ns = 60 * kSecond;       // until all ranks have joined
  int64_t operation_ns = 60 * kSecond;  // until another rank must have shared its memory, or voted
};

// A region of another rank, mapped into this process.
class MappedRegion {
 public:
  // Errc::corrupt: the file is smaller than `size`.
  static Result<std::shared_ptr<const MappedRegion>> map(const Fd& fd, uint64_t size);
  explicit MappedRegion(ByteSpan memory) : memory_(memory) {}
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  ByteSpan memory() const { return memory_; }

 private:
  ByteSpan memory_;
};

struct HostState {
  struct Region {
    ByteSpan memory = {};
    std::shared_ptr<const void> mapping = {};  // keeps it mapped
  };

  HostState(HostRank rank, Clock& steady) : self(std::move(rank)), clock(steady) {}

  // "rank 3 (process 4711)", with the global rank.
  std::string name_of(uint32_t rank) const;
  // Whether the process of a rank has ended, or the rank has left. False where the kernel does not
  // tell.
  bool is_gone(uint32_t rank) const { return operations->has_departed(rank) || has_ended(rank); }
  // Its process alone.
  bool has_ended(uint32_t rank) const;
  // Makes the eventfd of rank 0 readable, where a thread exchanges data with other hosts.
  void wake_leader() const;

  void add_region(uint32_t rank, uint32_t id, Region region);
  void remove_region(uint32_t rank, uint32_t id);
  // For threads in resolve(): the table of operations has a failure.
  void notify_failure() { changed_.notify_all(); }
  // As HostGroup::resolve().
  Result<std::byte*> resolve(uint32_t rank, const SharedAddress& address, uint64_t bytes);

  const HostRank self;
  Clock& clock;
  // Set while the ranks join, constant afterwards.
  std::shared_ptr<const net::SharedRegion> table_region;  // rank 0
  std::shared_ptr<const MappedRegion> table_mapping;      // other ranks
  std::optional<OperationTable> operations;
  std::map<uint32_t, int32_t> pids;  // by rank
  Fd wake_fd;                        // an eventfd of rank 0

 private:
  Result<std::byte*> check_bounds(const Region& region, uint32_t rank, const SharedAddress& address,
                                  uint64_t bytes) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, uint32_t>, Region> regions_;  // by rank and id; guarded by mutex_
};

}  // namespace ff::collective
