// Registered memory: shared while it is used, kept only in lasting memory and in bounds, with the
// rights of its use alone; and what happens when nothing more may be pinned.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "rdma/verbs_fixture.h"

namespace ff::net {
namespace {

constexpr size_t kPage = 4096;
using Use = VerbsRegistrationCache::Use;

class VerbsMemoryTest : public VerbsTest {
 protected:
  // Registers and lets go; how many registrations that made.
  uint64_t touch(ByteView memory, Use use) {
    const uint64_t before = registered().registrations();
    EXPECT_TRUE(registered().acquire(memory, use).ok());
    return registered().registrations() - before;
  }
};

TEST_F(VerbsMemoryTest, UsersOfOneRangeShareItsRegistration) {
  const Pages pages(8 * kPage);
  const size_t before = registered().registered();
  auto first = registered().acquire(pages.bytes(), Use::sink);
  auto second = registered().acquire(pages.bytes(), Use::sink);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->remote_key(), second->remote_key());
  EXPECT_EQ(registered().registered(), before + 1);
  EXPECT_EQ(touch(pages.bytes(), Use::receive), 0u);  // what a peer may write the device may, too
  first = VerbsRegistrationCache::Reference();
  EXPECT_EQ(registered().registered(), before + 1);
  second = VerbsRegistrationCache::Reference();
  EXPECT_EQ(registered().registered(), before);
  EXPECT_EQ(touch(pages.bytes(), Use::sink), 1u);
}

TEST_F(VerbsMemoryTest, APeerGetsNoMoreRightsThanItNeeds) {
  const Pages pages(8 * kPage);
  const auto sink = registered().acquire(pages.bytes(), Use::sink);
  const auto source = registered().acquire(pages.bytes(), Use::source);
  ASSERT_TRUE(sink.ok() && source.ok());
  EXPECT_NE(sink->remote_key(), source->remote_key());
  Pages fixed(kPage);
  fixed.forbid_writing();
  EXPECT_TRUE(registered().acquire(fixed.bytes(), Use::source).ok());
  EXPECT_FALSE(registered().acquire(fixed.bytes(), Use::sink).ok());
}

TEST_F(VerbsMemoryTest, LastingMemoryStaysRegistered) {
  const Pages pages(16 * kPage);
  const size_t before = registered().registered();
  {
    const auto lasting = registered().cacheable(pages.bytes());
    EXPECT_EQ(touch(pages.bytes().first(8 * kPage), Use::receive), 1u);
    EXPECT_EQ(touch(pages.bytes().first(8 * kPage), Use::receive), 0u);
    EXPECT_EQ(touch(pages.bytes().subspan(kPage, 100), Use::send), 0u);
    EXPECT_EQ(touch(pages.bytes().subspan(kPage, 100), Use::source), 1u);
    EXPECT_EQ(touch(pages.bytes().subspan(7 * kPage, 2 * kPage), Use::send), 1u);
    EXPECT_EQ(registered().unused(), 3u);
  }
  EXPECT_EQ(registered().registered(), before);
}

TEST_F(VerbsMemoryTest, TheOldestOfTooManyUnusedGoes) {
  constexpr size_t kMore = VerbsRegistrationCache::kUnusedMax + 10;
  const Pages pages(kMore * kPage);
  const auto lasting = registered().cacheable(pages.bytes());
  const auto page = [&](size_t i) { return pages.bytes().subspan(i * kPage, kPage); };
  for (size_t i = 0; i < VerbsRegistrationCache::kUnusedMax; i++)
    EXPECT_EQ(touch(page(i), Use::send), 1u);
  EXPECT_EQ(touch(page(0), Use::send), 0u);  // young again
  for (size_t i = VerbsRegistrationCache::kUnusedMax; i < kMore; i++) touch(page(i), Use::send);
  EXPECT_EQ(registered().unused(), VerbsRegistrationCache::kUnusedMax);
  EXPECT_EQ(touch(page(0), Use::send), 0u);
  EXPECT_EQ(touch(page(kMore - 1), Use::send), 0u);
  EXPECT_EQ(touch(page(1), Use::send), 1u);
}

// The same addresses, other pages: a registration that had been kept would name the old ones.
TEST_F(VerbsMemoryTest, RemappedMemoryIsReadAndWrittenAnew) {
  constexpr size_t kSize = 64 * kPage;
  receive_both();
  void* at = nullptr;
  for (uint64_t round = 0; round < 3; round++) {
    const Pages from(kSize);
    fill(from.bytes(), round);
    const Pages into(kSize, at);
    at = into.bytes().data();
    const auto source = client().expose_source(from.bytes());
    ASSERT_TRUE(source.ok());
    ASSERT_NE(source->buffer().key, 0u);
    ASSERT_TRUE(run(server().pull(source->buffer(), 0, into.bytes())).ok());
    EXPECT_TRUE(std::ranges::equal(from.bytes(), into.bytes())) << round;
  }
}

// Without the right to lock memory the limit on it counts. The right is given up before the device
// is opened: the kernel lets nobody else than the opener use its descriptors.
class PinnedTest : public VerbsTest {
 protected:
  void SetUp() override {
    set_effective(false);
    limit(RLIM_INFINITY);
    VerbsTest::SetUp();
  }
  void TearDown() override {
    VerbsTest::TearDown();
    limit(RLIM_INFINITY);
    set_effective(true);
  }
  static void limit(rlim_t bytes) {
    const rlimit limit = {bytes, RLIM_INFINITY};
    FF_CHECK(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  }

 private:
  static void set_effective(bool on) {
    __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    FF_CHECK(::syscall(SYS_capget, &head, data) == 0);
    const uint32_t bit = 1u << CAP_IPC_LOCK;
    data[0].effective =
        on ? data[0].effective | (data[0].permitted & bit) : data[0].effective & ~bit;
    FF_CHECK(::syscall(SYS_capset, &head, data) == 0);
  }
};

TEST_F(PinnedTest, WhatMayNotBePinnedGoesThroughFrames) {
  const Pages memory(kMiB);
  const Pages small(kPage);
  std::vector<std::byte> from(kMiB);
  fill(from, 3);
  receive_both();
  Connection::Exposure big;
  Connection::Exposure little;
  limit(64 * kKiB);
  auto refused = client().expose_sink(memory.bytes());
  ASSERT_TRUE(refused.ok());
  big = std::move(*refused);
  limit(RLIM_INFINITY);
  EXPECT_EQ(big.buffer().key, 0u);
  ASSERT_TRUE(run(server().push(big.buffer(), 0, from)).ok());
  server().send({.kind = FrameKind::reply, .call = 1});
  ASSERT_TRUE(run_until([&] { return at_client_.frames.size() == 1; }));
  EXPECT_TRUE(std::ranges::equal(memory.bytes(), from));
  // The local side has no other way: it says what to do.
  auto sink = client().expose_sink(small.bytes());
  ASSERT_TRUE(sink.ok());
  little = std::move(*sink);
  RemoteBuffer wide = little.buffer();
  wide.size = kMiB;
  limit(64 * kKiB);
  const auto pushed = run(server().push(wide, 0, from));
  ASSERT_FALSE(pushed.ok());
  EXPECT_EQ(pushed.error().code, Errc::busy);
  EXPECT_NE(pushed.error().hint.find("ulimit -l"), std::string::npos);
  EXPECT_FALSE(server().failed());
}

}  // namespace
}  // namespace ff::net
