// One-sided bulk transfer: one end of a connection accesses the memory of the other end directly,
// through shared memory (shm.h) or RDMA (verbs.h). Connections without Bulk send the bytes in
// frames.
#pragma once

#include <cstdint>
#include <optional>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::net {

// A range of the peer's memory. The peer describes it in a message (wire::Slice).
struct RemoteBuffer {
  uint64_t token = 0;    // identifies the exposure on its connection
  uint64_t size = 0;     // bytes
  uint64_t address = 0;  // shm: offset in the region; verbs: virtual address
  uint32_t key = 0;      // shm: region id; verbs: rkey; 0: reachable through frames only
};

class Bulk {
 public:
  virtual ~Bulk() = default;
  // True for shared memory: transfers cannot overrun a network link.
  virtual bool same_host() const { return false; }

  // Makes own memory accessible to the peer and sets address and key of `buffer`. Leaves key 0 if
  // this memory cannot be registered; its bytes then travel in frames.
  virtual Result<void> register_memory(ByteView memory, bool writable, RemoteBuffer& buffer) = 0;

  // Reverses register_memory(). RDMA: a peer that still uses the key breaks the connection.
  virtual void deregister_memory(const RemoteBuffer& buffer);

  // For buffers with a key only. The caller has checked the range against `size`.
  virtual Task<Result<void>> push(const RemoteBuffer& sink, uint64_t offset, ByteView from) = 0;
  virtual Task<Result<void>> pull(const RemoteBuffer& source, uint64_t offset, ByteSpan into) = 0;
  virtual std::optional<ByteSpan> mapped_memory(const RemoteBuffer&) { return std::nullopt; }

  // Announces a shared region, or its removal, to the peer. It must reach the peer before any
  // buffer with that key. The sender keeps ownership of `fd`.
  struct RegionUpdate {
    uint32_t id = 0;
    uint64_t size = 0;  // 0: the peer must unmap the region; no descriptor follows
    int fd = -1;
  };
  // The next update to send; empty when the peer knows everything.
  virtual std::optional<RegionUpdate> next_region_update() { return std::nullopt; }
  // Handles an update from the peer. Takes ownership of its descriptor.
  virtual Result<void> apply_region_update(const RegionUpdate& region);

  // Called when the connection fails: the peer may reuse its memory. No further access happens,
  // and running pushes and pulls end with an error.
  virtual void close() {}
};

}  // namespace ff::net
