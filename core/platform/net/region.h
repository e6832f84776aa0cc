// Regions: memory of this process that peers on the same host can be given, to write and read in
// place (shm.h). A peer gets the descriptor once a connection; what it may touch it learns from
// slices, but nothing stops it from touching the rest: a region holds what is meant to be shared.
//
//   huge     a nameless file on a private tmpfs mounted huge=always, which needs the right to
//   mount.
//            Large disk reads and copies want it: its pages are 2 MiB, and a device takes only some
//            hundred pages a request. The mount is attached nowhere, so nothing is left behind.
//   sealed   a memfd that nobody can shrink or grow, in pages of 4 KiB. For everyone.
//   adopted  a file of somebody else's, who has it mapped as well: for a time.
//
// A huge region cannot be sealed: a peer that has it may truncate it, and the owner's next touch
// then raises SIGBUS. So it is for peers that are trusted with that: a server, for its client.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::net {

class Region {
 public:
  enum class Kind : uint8_t { huge, sealed, adopted };

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Whole pages, zeros at first, taken from the machine when they are touched.
  ByteSpan memory() const { return {base_, size_}; }
  // As peers name it, never 0.
  uint32_t id() const { return id_; }
  Kind kind() const { return kind_; }
  // Stays the region's.
  int fd() const { return fd_.get(); }
  // Peers are to forget it.
  bool removed() const { return removed_.load(); }

 private:
  friend class RegionSet;
  Region(Kind kind, uint32_t id, Fd fd) : kind_(kind), id_(id), fd_(std::move(fd)) {}

  Kind kind_;
  uint32_t id_;
  Fd fd_;
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  mutable std::atomic<bool> removed_{false};
};

// The regions of a process. All of it may be called from any thread. Connections that have told
// their peer of a region that is removed tell it so with the next thing they send, and keep the
// file until then.
class RegionSet {
 public:
  // At least `size` bytes, not 0, on huge pages where this process may have them.
  Result<std::shared_ptr<const Region>> make(uint64_t size);
  // Of that kind. Errc::refused or Errc::unsupported: huge pages that this process cannot have.
  Result<std::shared_ptr<const Region>> make(uint64_t size, Region::Kind kind);
  // `memory` is mapped from `fd`, in whole, and stays so until the region is removed.
  std::shared_ptr<const Region> adopt(ByteSpan memory, Fd fd);
  // From now on it is not found. Nobody may use it any more.
  void remove(const Region& region);
  // How many were removed ever.
  uint64_t removals() const { return removals_.load(); }

  // The one that all of `memory` is in; null when there is none.
  std::shared_ptr<const Region> find(ByteView memory) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<const Region>> regions_;  // by their first byte
  uint32_t last_id_ = 0;
  std::atomic<uint64_t> removals_{0};
};

}  // namespace ff::net
