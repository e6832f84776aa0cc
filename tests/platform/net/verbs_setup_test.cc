// Encoding of the RDMA set-up exchange, and the error on machines without RDMA. tests/rdma tests
// the rest with a device.
#include "platform/net/verbs_setup.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/verbs.h"
#include "platform/simd/crc32c.h"

namespace ff::net {
namespace {

VerbsEndpoint sample() {
  VerbsEndpoint endpoint = {.qpn = 0xabcdef,
                            .psn = 0xffffff,
                            .gid = {},
                            .lid = 0x1234,
                            .mtu = 4096,
                            .receives = 32,
                            .reads = 16,
                            .message_max = 8192};
  for (size_t i = 0; i < endpoint.gid.size(); i++) endpoint.gid[i] = static_cast<std::byte>(i);
  return endpoint;
}

TEST(VerbsSetup, AnEndpointGoesThere) {
  const VerbsEndpoint sent = sample();
  const auto bytes = encode_endpoint(sent);
  ASSERT_EQ(bytes.size(), 48u);
  EXPECT_EQ(load_le<uint32_t>(bytes.data() + 8), 0xabcdefu);  // as drawn in verbs_setup.h
  EXPECT_EQ(load_le<uint16_t>(bytes.data() + 34), 4096u);
  const auto got = parse_endpoint(bytes);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->qpn, sent.qpn);
  EXPECT_EQ(got->psn, sent.psn);
  EXPECT_EQ(got->gid, sent.gid);
  EXPECT_EQ(got->lid, sent.lid);
  EXPECT_EQ(got->mtu, sent.mtu);
  EXPECT_EQ(got->receives, sent.receives);
  EXPECT_EQ(got->reads, sent.reads);
  EXPECT_EQ(got->message_max, sent.message_max);
}

TEST(VerbsSetup, EveryFlippedBitIsRefused) {
  const auto bytes = encode_endpoint(sample());
  for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
    auto broken = bytes;
    broken[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const auto got = parse_endpoint(broken);
    ASSERT_FALSE(got.ok()) << "bit " << bit;
    EXPECT_EQ(got.error().code, Errc::corrupt);
  }
}

TEST(VerbsSetup, WhatCannotBeIsRefused) {
  const std::vector<std::function<void(VerbsEndpoint&)>> breaks = {
      [](VerbsEndpoint& end) { end.qpn = 0; },
      [](VerbsEndpoint& end) { end.qpn = 1 << 24; },
      [](VerbsEndpoint& end) { end.psn = 1 << 24; },
      [](VerbsEndpoint& end) { end.mtu = 0; },
      [](VerbsEndpoint& end) { end.mtu = 128; },
      [](VerbsEndpoint& end) { end.mtu = 1500; },
      [](VerbsEndpoint& end) { end.mtu = 8192; },
      [](VerbsEndpoint& end) { end.receives = 1; },
      [](VerbsEndpoint& end) { end.receives = kReceivesLimit + 1; },
      [](VerbsEndpoint& end) { end.message_max = 63; },
      [](VerbsEndpoint& end) { end.message_max = kMessageLimit + 1; },
  };
  for (size_t i = 0; i < breaks.size(); i++) {
    VerbsEndpoint endpoint = sample();
    breaks[i](endpoint);
    const auto got = parse_endpoint(encode_endpoint(endpoint));
    ASSERT_FALSE(got.ok()) << i;
    EXPECT_EQ(got.error().code, Errc::corrupt) << i;
  }
}

TEST(VerbsSetup, AnotherVersionSaysSo) {
  auto bytes = encode_endpoint(sample());
  store_le<uint16_t>(bytes.data() + 4, kVerbsVersion + 1);
  store_le<uint32_t>(bytes.data() + 44, simd::crc32c(ByteView(bytes).first(44)));
  const auto got = parse_endpoint(bytes);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Errc::newer_format);
}

TEST(VerbsDevice, AMachineWithoutSaysWhatToDo) {
  SystemClock clock;
  SystemLoop loop(clock);
  const auto any = VerbsDevice::open(loop, {});
  if (any.ok()) GTEST_SKIP() << "this machine has the RDMA device " << (*any)->name();
  EXPECT_EQ(any.error().code, Errc::unsupported);
  EXPECT_NE(any.error().hint.find("--net tcp"), std::string::npos);
  VerbsOptions options;
  options.device = "mlx5_9";
  const auto named = VerbsDevice::open(loop, options);
  EXPECT_EQ(named.error().code, Errc::unsupported);
}

}  // namespace
}  // namespace ff::net
