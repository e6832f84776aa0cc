// Two ends of a connection over shared memory, with regions of one kind.
#pragma once

#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "platform/base/system_loop.h"
#include "platform/net/shm.h"
#include "platform/net/socket_ends.h"
#include "platform/net/tested_pair.h"

namespace ff::net {

inline size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

// Whether this process may have huge regions.
inline bool offers_huge() { return SharedRegionSet().make(1, SharedRegion::Kind::huge).ok(); }

inline std::unique_ptr<Connection> shm_connection(Loop& loop, Socket socket,
                                                  const SharedRegionSet& regions) {
  return std::make_unique<Connection>(loop, stream_of(loop, std::move(socket)),
                                      std::make_unique<ShmBulk>(loop, regions));
}

class ShmPair final : public TestedPair {
 public:
  explicit ShmPair(SharedRegion::Kind kind) : kind_(kind) {
    SocketEnds ends = connected_sockets(loop_, unix_test_address());
    client = shm_connection(loop_, std::move(ends.client), regions);
    server = shm_connection(loop_, std::move(ends.server), regions);
  }
  ~ShmPair() override {
    client.reset();
    server.reset();
  }
  Loop& loop() override { return loop_; }
  // Several in a region, at odd offsets.
  ByteSpan memory(size_t size) override {
    constexpr size_t kRegion = 48 * kMiB;
    if (region_ == nullptr || used_ + size > kRegion) {
      auto region = regions.make(kRegion, kind_);
      FF_CHECK(region.ok());
      region_ = *region;
      used_ = 777;
    }
    const ByteSpan memory = region_->memory().subspan(used_, size);
    used_ += size + 13;
    return memory;
  }

  SharedRegionSet regions;

 private:
  SystemClock clock_;
  SystemLoop loop_{clock_};
  SharedRegion::Kind kind_;
  std::shared_ptr<const SharedRegion> region_;
  size_t used_ = 0;
};

}  // namespace ff::net
