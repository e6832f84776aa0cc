// Shared regions: memory of this process that peers on the same host map and access in place
// (shm.h). Each connection passes the descriptor once. RemoteBuffers tell the peer which bytes to
// use, but it can access the whole region: put only shareable data there.
//
//   huge     an unnamed file on a private tmpfs mounted with huge=always; needs the right to
//            mount. Pages of 2 MiB speed up large disk reads and copies: one device request takes
//            only some hundred pages. The mount is not attached, so no cleanup is necessary.
//   sealed   a memfd sealed against size changes. Needs no privileges. Its pages have 4 KiB, or 2
//   MiB
//            if /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or "always".
//   adopted  a file that another process owns and has mapped too; used for a limited time.
//
// A region outlives its process while a peer maps it. A process that continues this one, with the
// same memory, must know how long: peers may still write to it. So each process shares an open file
// description of its own, and locks a byte of it (F_OFD_SETLK); the lock lasts until the last peer
// has unmapped the region, and the successor sees it (used_before()). Each process has its byte in
// a range that only processes have which continue each other: they have the same first region.
//
// A huge region cannot be sealed: a peer may truncate it, and the owner's next access raises
// SIGBUS. Share it only with peers that are trusted not to do so, such as a server.
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

// Another open file description of the same file.
Result<Fd> open_again(int fd);

class SharedRegion {
 public:
  enum class Kind : uint8_t { huge, sealed, adopted };

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // Whole pages, initially zero, allocated on first access.
  ByteSpan memory() const { return {base_, size_}; }
  // The id that peers use; never 0.
  uint32_t id() const { return id_; }
  Kind kind() const { return kind_; }
  // Owned by the region.
  int fd() const { return fd_.get(); }
  // True once peers must unmap it.
  bool removed() const { return removed_.load(); }
  // Whether peers of a process that this one continues still map it.
  bool used_before() const;

 private:
  friend class SharedRegionSet;
  SharedRegion(Kind kind, uint32_t id, Fd fd, int64_t locks)
      : kind_(kind), id_(id), fd_(std::move(fd)), locks_(locks) {}

  Kind kind_;
  uint32_t id_;
  Fd fd_;
  int64_t locks_;  // where the range of bytes begins
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  mutable std::atomic<bool> removed_{false};
};

// The shared regions of a process. Thread-safe. Connections that announced a region announce its
// removal with the next frame that they send, and keep the file open until then.
class SharedRegionSet {
 public:
  // At least `size` > 0 bytes, on huge pages if this process may use them.
  Result<std::shared_ptr<const SharedRegion>> make(uint64_t size);
  // Errc::refused, Errc::unsupported: this process cannot use huge pages.
  Result<std::shared_ptr<const SharedRegion>> make(uint64_t size, SharedRegion::Kind kind);
  // `memory` is the complete mapping of `fd`, and stays mapped until the region is removed. Others
  // may have `fd`, too.
  std::shared_ptr<const SharedRegion> adopt(ByteSpan memory, Fd fd);
  // find() no longer returns it. It must not be in use.
  void remove(const SharedRegion& region);
  // Total number of removals so far.
  uint64_t removals() const { return removals_.load(); }

  // The region that contains all of `memory`; null if none does.
  std::shared_ptr<const SharedRegion> find(ByteView memory) const;

 private:
  std::shared_ptr<SharedRegion> add(SharedRegion::Kind kind, Fd fd, ByteSpan memory);

  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<const SharedRegion>> regions_;  // by their first byte
  uint32_t last_id_ = 0;
  int64_t locks_ = -1;  // as SharedRegion::locks_; -1: there has been no region yet
  std::atomic<uint64_t> removals_{0};
};

}  // namespace ff::net
