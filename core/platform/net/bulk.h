// How one end of a connection reaches the other's memory without bytes in frames, as shared memory
// (shm.h) and RDMA (verbs.h) can. Connections without one send payloads in frames.
#pragma once

#include <cstdint>
#include <optional>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::net {

// A range of a peer's memory, as it names it to us in a message.
struct Slice {
  uint64_t token = 0;    // the exposure, on its connection
  uint64_t size = 0;     // bytes
  uint64_t address = 0;  // shm: offset in the region; verbs: virtual address
  uint32_t key = 0;      // shm: region, verbs: rkey; 0: only through frames
};

class Bulk {
 public:
  virtual ~Bulk() = default;
  // Through memory of this machine: no link can be overrun.
  virtual bool same_host() const { return false; }

  // Makes own memory reachable for the peer: fills in address and key of `slice`, or leaves key 0
  // where this memory cannot be (it is then reached through frames).
  virtual Result<void> share(ByteView memory, bool writable, Slice& slice) = 0;

  // Undoes a share(). Over RDMA a peer that still uses the key breaks the connection.
  virtual void unshare(const Slice& slice);

  // Only for slices with a key. The range was checked against the slice.
  virtual Task<Result<void>> push(const Slice& sink, uint64_t offset, ByteView from) = 0;
  virtual Task<Result<void>> pull(const Slice& source, uint64_t offset, ByteSpan into) = 0;
  virtual std::optional<ByteSpan> reach(const Slice&) { return std::nullopt; }

  // Memory the peer must be told of before it meets its key in a slice. The descriptor stays ours.
  struct Region {
    uint32_t id = 0;
    uint64_t size = 0;  // 0: it is to be forgotten, and has no descriptor
    int fd = -1;
  };
  // What share() has added to that, and what it is to forget; nothing when all is told.
  virtual std::optional<Region> next_region() { return std::nullopt; }
  // The peer told of one; its descriptor is the callee's.
  virtual Result<void> add_region(const Region& region);

  // The connection has failed: the peer's memory may be its own again, so nothing more is written
  // or read there, and a push or pull under way ends with an error.
  virtual void close() {}
};

}  // namespace ff::net
