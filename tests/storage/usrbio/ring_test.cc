// The parts of USRBIO that need no mount: link names, sizes, and cache lines.
#include "storage/usrbio/ring.h"

#include <gtest/gtest.h>

#include <iostream>

#include "platform/base/rng.h"
#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/ioctls.h"
#include "storage/usrbio/iov_link_name.h"

namespace ff::usrbio {
namespace {

constexpr std::string_view kId = "000102030405060708090a0b0c0d0e0f";

TEST(Ring, SidesWriteToCacheLinesOfTheirOwn) {
  EXPECT_EQ(offsetof(RingHeader, submitted), 64u);
  EXPECT_EQ(offsetof(RingHeader, daemon_sleeping), 128u);
  EXPECT_EQ(offsetof(RingHeader, completed), 192u);
  EXPECT_EQ(offsetof(RingHeader, waiters), 256u);
}

TEST(Ring, TakesWholePages) {
  EXPECT_EQ(ring_bytes(0), 0u);
  EXPECT_EQ(ring_bytes(-1), 0u);
  EXPECT_EQ(ring_bytes(kEntriesMax + 1), 0u);
  EXPECT_EQ(hf3fs_ior_size(1), 4096u);
  for (const int entries : {1, 2, 3, 64, 100, 1 << 16}) {
    const size_t bytes = ring_bytes(entries);
    EXPECT_EQ(bytes % 4096, 0u);
    const uint32_t capacity = queue_capacity(static_cast<uint32_t>(entries));
    EXPECT_GE(capacity, static_cast<uint32_t>(entries));
    EXPECT_GE(bytes,
              sizeof(RingHeader) + capacity * (sizeof(SubmissionEntry) + sizeof(CompletionEntry)));
  }
}

TEST(Ring, NumbersWrap) {
  std::vector<std::byte> memory(ring_bytes(5));
  const Ring ring(memory.data(), 5);
  EXPECT_EQ(ring.capacity(), 8u);
  EXPECT_EQ(&ring.submission(UINT32_MAX) + 1 - 8, &ring.submission(0));
  EXPECT_EQ(&ring.completion(3), &ring.completion(11));
  EXPECT_EQ(reinterpret_cast<std::byte*>(&ring.completion(0)),
            reinterpret_cast<std::byte*>(&ring.submission(7) + 1));
  EXPECT_LE(reinterpret_cast<std::byte*>(&ring.completion(7) + 1), memory.data() + memory.size());
}

TEST(IovLinkName, SaysWhatItIs) {
  const std::string id(kId);
  const auto data = parse_iov_link_name(id + ".b4096");
  ASSERT_TRUE(data.has_value());
  EXPECT_FALSE(data->ring);
  EXPECT_EQ(data->block, 4096u);
  EXPECT_EQ(text_of(data->id), kId);
  const auto ring = parse_iov_link_name(id + ".r-16.ph.t250.f10");
  ASSERT_TRUE(ring.has_value());
  EXPECT_TRUE(ring->ring && ring->read);
  EXPECT_EQ(ring->depth, -16);
  EXPECT_EQ(ring->priority, -1);
  EXPECT_EQ(ring->timeout_ms, 250);
  EXPECT_EQ(ring->flags, HF3FS_IOR_FORBID_READ_HOLES);
  EXPECT_TRUE(parse_iov_link_name("00010203-0405-0607-0809-0a0b0c0d0e0f").has_value());
}

TEST(IovLinkName, RefusesOthers) {
  const std::string id(kId);
  for (const std::string& name :
       {std::string(), std::string("submit-ios"), id.substr(1), id + "0", id + ".", id + ".b",
        id + ".b0", id + ".b-1", id + ".x1", id + ".ph", id + ".t1", id + ".f1", id + ".r",
        id + ".r1.w1", id + ".r1.t-1", id + ".r1.f2", id + ".r99999999999", id + ".r1..t0",
        id + ".r-2147483648"}) {
    EXPECT_FALSE(parse_iov_link_name(name).has_value()) << name;
  }
}

TEST(IovLinkName, ReadsWhatItWrites) {
  const uint64_t seed = system_seed();
  std::cout << "seed " << seed << "\n";
  SeededRng rng(seed);
  for (int i = 0; i < 10'000; i++) {
    IovLinkName name;
    for (uint8_t& byte : name.id) byte = static_cast<uint8_t>(rng.below(256));
    name.ring = rng.below(2) == 0;
    if (name.ring) {
      name.read = rng.below(2) == 0;
      name.depth = static_cast<int32_t>(rng.below(1000)) - 500;
      name.priority = static_cast<int>(rng.below(3)) - 1;
      name.timeout_ms = static_cast<int32_t>(rng.below(10000));
      name.flags = rng.below(4);
    } else {
      name.block = rng.below(2) * 4096;
    }
    const std::string text = text_of(name);
    const auto read = parse_iov_link_name(text);
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_EQ(text_of(*read), text);
    std::string other = text;
    other[rng.below(other.size())] = static_cast<char>(rng.below(128));
    (void)parse_iov_link_name(other);  // whatever it says of it
  }
}

}  // namespace
}  // namespace ff::usrbio
