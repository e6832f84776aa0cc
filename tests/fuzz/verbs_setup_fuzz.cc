// The set-up of an RDMA connection from anyone who can reach the port: no crash, and what is
// accepted is within its limits and encodes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/net/verbs_setup.h"
#include "platform/simd/crc32c.h"

namespace {

using namespace ff;
using namespace ff::net;

void parse(ByteView bytes) {
  const auto endpoint = parse_endpoint(bytes);
  if (!endpoint) return;
  FF_CHECK(endpoint->receives >= 2 && endpoint->receives <= kReceivesLimit);
  FF_CHECK(endpoint->message_max <= kMessageLimit && endpoint->mtu <= 4096);
  FF_CHECK(std::ranges::equal(encode_endpoint(*endpoint), bytes.first(kEndpointBytes)));
}

}  // namespace

// Each input is tried as it is, and once more with its CRC computed again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kEndpointBytes) return 0;
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  parse(bytes);
  std::vector<std::byte> repaired(bytes.begin(), bytes.begin() + kEndpointBytes);
  constexpr size_t kCrcAt = kEndpointBytes - sizeof(uint32_t);
  store_le(repaired.data() + kCrcAt, simd::crc32c(ByteView(repaired).first(kCrcAt)));
  parse(repaired);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const VerbsEndpoint endpoint = {.qpn = 17,
                                  .psn = 99,
                                  .gid = {},
                                  .lid = 1,
                                  .mtu = 1024,
                                  .receives = 32,
                                  .reads = 16,
                                  .message_max = 8192};
  return {std::string(as_text(encode_endpoint(endpoint)))};
}
