// Simulated shared memory between two processes of one machine (compare net/shm.h). Private to
// sim_net.
#pragma once

#include "platform/net/bulk.h"

namespace ff::sim {

// The memory that each end of a connection shares with the other; empty: none.
struct SimSharedMemory {
  ByteSpan own = {};
  ByteSpan peers = {};
};

class SimBulk final : public net::Bulk {
 public:
  // The memory must outlive it.
  explicit SimBulk(SimSharedMemory memory) : memory_(memory) {}
  bool same_host() const override { return true; }

  Result<void> register_memory(ByteView memory, bool writable, net::RemoteBuffer& buffer) override;
  Task<Result<void>> push(const net::RemoteBuffer& sink, uint64_t offset, ByteView from) override;
  Task<Result<void>> pull(const net::RemoteBuffer& source, uint64_t offset, ByteSpan into) override;
  std::optional<ByteSpan> mapped_memory(const net::RemoteBuffer& buffer) override;
  void close() override { closed_ = true; }

 private:
  Result<ByteSpan> place(const net::RemoteBuffer& buffer, uint64_t offset, uint64_t size) const;

  const SimSharedMemory memory_;
  bool closed_ = false;
};

}  // namespace ff::sim
