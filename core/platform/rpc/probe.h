// The probe service: pings with an optional delay, and bulk transfers from and to the server's
// memory. Used to measure and test the network.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/rpc/method.h"
#include "platform/rpc/probe.pb.h"

namespace ff::rpc {

inline constexpr Method<wire::PingRequest, wire::PingReply> kPing{0x0001, "probe.ping"};
inline constexpr Method<wire::ReadRequest, wire::ReadReply> kProbeRead{0x0002, "probe.read"};
inline constexpr Method<wire::WriteRequest, wire::WriteReply> kProbeWrite{0x0003, "probe.write"};

class ProbeService {
 public:
  // Maximum bulk bytes of one call.
  static constexpr uint64_t kBytesMax = 64 * kMiB;

  explicit ProbeService(Router& router);

  // Pings answered so far.
  uint64_t pings() const { return pings_; }
  // `size` bytes that depend on `seed` only.
  static std::vector<std::byte> pattern(uint64_t seed, size_t size);

 private:
  Task<Result<wire::PingReply>> ping(ServerCall& call, wire::PingRequest request);
  Task<Result<wire::ReadReply>> read(ServerCall& call, wire::ReadRequest request);
  Task<Result<wire::WriteReply>> write(ServerCall& call, wire::WriteRequest request);

  uint64_t pings_ = 0;
};

}  // namespace ff::rpc
