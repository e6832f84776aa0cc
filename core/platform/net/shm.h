// Bulk transfers through shared memory. The peer is on the same host and has announced its regions
// (shared_region.h) over the Unix socket that carries the frames. A push writes into the peer's
// region, a pull reads from it. Memory outside of any region travels in frames.
//
// The peer may truncate or overwrite its region at any moment, and may name ranges that do not
// exist. So only kernel I/O (pread, pwrite) accesses a region: it returns an error where loads and
// stores would raise SIGBUS. Measured cost: none on huge pages, up to a third of a memcpy on small
// pages, and faster than memcpy on the first access to a page.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "platform/base/fd.h"
#include "platform/base/loop.h"
#include "platform/net/bulk.h"
#include "platform/net/shared_region.h"

namespace ff::net {

// Limits of regions per connection and direction: each costs the peer that maps it a descriptor
// and address space.
constexpr size_t kRegionsMax = 64;
constexpr uint64_t kRegionBytesMax = 64 * kGiB;
// Limit of reserved addresses of removed regions: running I/O may still use the addresses.
constexpr uint64_t kReservedBytesMax = 1024 * kGiB;

// A user may be hostile: all connections of one with shared memory, at most this many, take at most
// 2 TiB of the 128 TiB of addresses. Further ones use TCP.
constexpr uint64_t kUserReservedBytesMax = 64 * kGiB;
constexpr long kUserShmConnections = 16;

class ShmBulk final : public Bulk {
 public:
  // `own` must outlive it. `user`: what counts the connections of the user who is the peer, and
  // lives as long as this object; null: the peer is none.
  ShmBulk(Loop& loop, const SharedRegionSet& own, std::shared_ptr<const void> user = nullptr)
      : loop_(loop),
        own_(own),
        reserved_max_(user == nullptr ? kReservedBytesMax : kUserReservedBytesMax),
        user_(std::move(user)) {}
  ~ShmBulk() override;
  bool same_host() const override { return true; }

  // Leaves key 0 if `memory` is in no region, or the limits above are reached. A peer with a buffer
  // of a region can read and write the whole region.
  Result<void> register_memory(ByteView memory, bool writable, RemoteBuffer& buffer) override;
  std::optional<RegionUpdate> next_region_update() override;
  // Errc::corrupt: not a writable memory file, announced twice, over the limits above, or removed
  // before it was announced.
  Result<void> apply_region_update(const RegionUpdate& region) override;

  // Errc::corrupt: a buffer outside the peer's region. Errc::refused with EFAULT: the owner has
  // truncated the region, or the tmpfs is full. Errc::unreachable: another kernel error, or the
  // connection has failed.
  Task<Result<void>> push(const RemoteBuffer& sink, uint64_t offset, ByteView from) override;
  Task<Result<void>> pull(const RemoteBuffer& source, uint64_t offset, ByteSpan into) override;
  // Kernel I/O on it fails with EFAULT where the owner has truncated the region.
  std::optional<ByteSpan> mapped_memory(const RemoteBuffer& buffer) override;
  void close() override { closed_ = true; }

 private:
  // A mapped region of the peer.
  struct MappedRegion {
    Fd fd;
    std::byte* base = nullptr;
    uint64_t size = 0;
    bool sealed = false;  // cannot shrink
  };
  struct RegionOffset {
    const MappedRegion* region = nullptr;
    uint64_t at = 0;
  };
  Result<void> unmap(uint32_t id);
  void queue_removals();
  Result<RegionOffset> locate(const RemoteBuffer& buffer, uint64_t offset, uint64_t size) const;
  Task<Result<void>> yield_if_due();

  Loop& loop_;
  const SharedRegionSet& own_;
  const uint64_t reserved_max_;
  const std::shared_ptr<const void> user_;
  std::map<uint32_t, std::shared_ptr<const net::SharedRegion>> announced_;
  uint64_t announced_bytes_ = 0;
  uint64_t removals_ = 0;  // SharedRegionSet::removals() at the last check of announced_
  // Removed regions and the time of removal: their descriptors may not have been sent yet.
  std::deque<std::pair<int64_t, std::shared_ptr<const net::SharedRegion>>> removed_;
  std::deque<RegionUpdate> updates_;
  std::map<uint32_t, MappedRegion> mapped_;
  uint64_t mapped_bytes_ = 0;
  std::deque<ByteSpan> reserved_;  // addresses of removed regions
  uint64_t reserved_bytes_ = 0;
  uint64_t copied_ = 0;  // bytes since the last yield
  bool closed_ = false;
};

}  // namespace ff::net
