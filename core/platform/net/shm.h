// Bulk through shared memory: the peer is on the same host and has told us its regions (region.h)
// over the Unix socket that carries the frames. What we push is written into its region and what we
// pull is read from there, in place; memory of ours in no region goes through frames.
//
// A region is the peer's: it may cut it off or scribble over it at any moment, and name places that
// are not there. So it is only touched by kernel I/O, which ends with an error where loads and
// stores would raise SIGBUS. Measured, that costs nothing on huge pages and up to a third of a
// memcpy on small ones, and beats memcpy where pages are touched first.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "platform/base/fd.h"
#include "platform/base/loop.h"
#include "platform/net/bulk.h"
#include "platform/net/region.h"

namespace ff::net {

// Regions told over one connection, each way, and their bytes: they cost the one who maps them
// descriptors and addresses.
constexpr size_t kRegionsMax = 64;
constexpr uint64_t kRegionBytesMax = 64 * kGiB;
// Addresses of regions that were forgotten, which are kept: I/O may be on its way there still.
constexpr uint64_t kForgottenBytesMax = 1024 * kGiB;

class ShmBulk final : public Bulk {
 public:
  // `own` must outlive it.
  ShmBulk(Loop& loop, const RegionSet& own) : loop_(loop), own_(own) {}
  ~ShmBulk() override;
  bool same_host() const override { return true; }

  // Key 0 where `memory` is in no region, and beyond the bounds above. A peer that has a slice of
  // a region can reach all of the region, and write where it was to read.
  Result<void> share(ByteView memory, bool writable, Slice& slice) override;
  std::optional<Region> next_region() override;
  // Errc::corrupt: no memory file that can be written, told twice, beyond the bounds above, or
  // forgotten before it was told.
  Result<void> add_region(const Region& region) override;

  // Errc::corrupt: a slice outside the peer's region. Errc::refused, with EFAULT: the owner has cut
  // the region off, or there is no page for it.
  // Errc::unreachable: the kernel refuses, or the connection has failed.
  Task<Result<void>> push(const Slice& sink, uint64_t offset, ByteView from) override;
  Task<Result<void>> pull(const Slice& source, uint64_t offset, ByteSpan into) override;
  // Kernel I/O gets EFAULT where the owner has cut it off.
  std::optional<ByteSpan> reach(const Slice& slice) override;
  void close() override { closed_ = true; }

 private:
  // A region of the peer.
  struct Mapped {
    Fd fd;
    std::byte* base = nullptr;
    uint64_t size = 0;
    bool sealed = false;  // cannot shrink
  };
  struct Place {
    const Mapped* region = nullptr;
    uint64_t at = 0;
  };
  Result<void> forget(uint32_t id);
  void find_removed();
  Result<Place> place(const Slice& slice, uint64_t offset, uint64_t size) const;
  Task<Result<void>> turn();

  Loop& loop_;
  const RegionSet& own_;
  std::map<uint32_t, std::shared_ptr<const net::Region>> told_;
  uint64_t told_bytes_ = 0;
  uint64_t removals_ = 0;  // that were looked for among them
  // Not told of any more, and since when: their descriptors may be on their way still.
  std::deque<std::pair<int64_t, std::shared_ptr<const net::Region>>> gone_;
  std::deque<Region> to_tell_;
  std::map<uint32_t, Mapped> mapped_;
  uint64_t mapped_bytes_ = 0;
  std::deque<ByteSpan> forgotten_;  // addresses without memory
  uint64_t forgotten_bytes_ = 0;
  uint64_t moved_ = 0;  // bytes since other tasks had their turn
  bool closed_ = false;
};

}  // namespace ff::net
