// verbs_setup.cc: encoding and decoding of endpoints.
#include "platform/net/verbs_setup.h"

#include <bit>
#include <cstring>

#include "platform/simd/crc32c.h"

namespace ff::net {

namespace {

// Offsets in the endpoint.
constexpr size_t kSetupMagicAt = 0;
constexpr size_t kSetupVersionAt = 4;
constexpr size_t kSetupZeroAt = 6;
constexpr size_t kQpnAt = 8;
constexpr size_t kPsnAt = 12;
constexpr size_t kGidAt = 16;
constexpr size_t kLidAt = 32;
constexpr size_t kMtuAt = 34;
constexpr size_t kReceivesAt = 36;
constexpr size_t kReadsAt = 38;
constexpr size_t kMessageMaxAt = 40;
constexpr size_t kCrcAt = 44;
static_assert(kCrcAt + sizeof(uint32_t) == kEndpointBytes);

constexpr uint32_t kNumbersEnd = 1 << 24;  // limit of queue pair and packet numbers
constexpr uint16_t kReceivesMin = 2;       // half of them must be at least 1
constexpr uint32_t kMessageMin = 64;

}  // namespace

EndpointBytes encode_endpoint(const VerbsEndpoint& endpoint) {
  EndpointBytes bytes;
  std::byte* const at = bytes.data();
  store_le<uint32_t>(at + kSetupMagicAt, kEndpointMagic);
  store_le<uint16_t>(at + kSetupVersionAt, kVerbsVersion);
  store_le<uint16_t>(at + kSetupZeroAt, 0);
  store_le<uint32_t>(at + kQpnAt, endpoint.qpn);
  store_le<uint32_t>(at + kPsnAt, endpoint.psn);
  std::memcpy(at + kGidAt, endpoint.gid.data(), endpoint.gid.size());
  store_le<uint16_t>(at + kLidAt, endpoint.lid);
  store_le<uint16_t>(at + kMtuAt, endpoint.mtu);
  store_le<uint16_t>(at + kReceivesAt, endpoint.receives);
  store_le<uint16_t>(at + kReadsAt, endpoint.reads);
  store_le<uint32_t>(at + kMessageMaxAt, endpoint.message_max);
  store_le<uint32_t>(at + kCrcAt, simd::crc32c(ByteView(bytes).first(kCrcAt)));
  return bytes;
}

Result<VerbsEndpoint> parse_endpoint(ByteView bytes) {
  FF_CHECK(bytes.size() >= kEndpointBytes);
  const std::byte* const at = bytes.data();
  if (load_le<uint32_t>(at + kSetupMagicAt) != kEndpointMagic) {
    return fail(Errc::corrupt, "not the set-up of an RDMA connection (it begins with {:#010x})",
                load_le<uint32_t>(at + kSetupMagicAt));
  }
  if (load_le<uint32_t>(at + kCrcAt) != simd::crc32c(bytes.first(kCrcAt))) {
    return fail(Errc::corrupt, "the set-up of an RDMA connection does not match its CRC32C");
  }
  const auto version = load_le<uint16_t>(at + kSetupVersionAt);
  if (version != kVerbsVersion) {
    return fail(Errc::newer_format, "RDMA set-up of version {} (this is {})", version,
                kVerbsVersion);
  }
  VerbsEndpoint end;
  end.qpn = load_le<uint32_t>(at + kQpnAt);
  end.psn = load_le<uint32_t>(at + kPsnAt);
  std::copy_n(at + kGidAt, end.gid.size(), end.gid.begin());
  end.lid = load_le<uint16_t>(at + kLidAt);
  end.mtu = load_le<uint16_t>(at + kMtuAt);
  end.receives = load_le<uint16_t>(at + kReceivesAt);
  end.reads = load_le<uint16_t>(at + kReadsAt);
  end.message_max = load_le<uint32_t>(at + kMessageMaxAt);
  const bool numbers = end.qpn > 0 && end.qpn < kNumbersEnd && end.psn < kNumbersEnd;
  const bool mtu = std::has_single_bit(end.mtu) && end.mtu >= 256 && end.mtu <= 4096;
  const bool room = end.receives >= kReceivesMin && end.receives <= kReceivesLimit &&
                    end.message_max >= kMessageMin && end.message_max <= kMessageLimit;
  if (!numbers || !mtu || !room || load_le<uint16_t>(at + kSetupZeroAt) != 0) {
    return fail(Errc::corrupt,
                "the set-up of an RDMA connection cannot be: queue pair {}, packet {}, MTU {}, "
                "{} receives of {} bytes",
                end.qpn, end.psn, end.mtu, end.receives, end.message_max);
  }
  return end;
}

}  // namespace ff::net
