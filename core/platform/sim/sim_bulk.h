// Memory that simulated processes of one machine share, as net/shm.h does: the peer's is written
// and read in place. The insides of sim_net.h.
#pragma once

#include "platform/net/bulk.h"

namespace ff::sim {

// What each end of a connection lets the other reach; empty: nothing.
struct SimShared {
  ByteSpan own = {};
  ByteSpan peers = {};
};

class SimBulk final : public net::Bulk {
 public:
  // The memory outlives it.
  explicit SimBulk(SimShared memory) : memory_(memory) {}
  bool same_host() const override { return true; }

  Result<void> share(ByteView memory, bool writable, net::Slice& slice) override;
  Task<Result<void>> push(const net::Slice& sink, uint64_t offset, ByteView from) override;
  Task<Result<void>> pull(const net::Slice& source, uint64_t offset, ByteSpan into) override;
  std::optional<ByteSpan> reach(const net::Slice& slice) override;
  void close() override { closed_ = true; }

 private:
  Result<ByteSpan> place(const net::Slice& slice, uint64_t offset, uint64_t size) const;

  const SimShared memory_;
  bool closed_ = false;
};

}  // namespace ff::sim
