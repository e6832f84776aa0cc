// The cryptographic primitives of the cluster key against known answers, and modes of key files.
#include "platform/auth/key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::auth {
namespace {

// RFC 4231, test cases 1 and 2: shorter keys are padded with zeros, as HMAC does itself.
TEST(KeyTest, TheHmacIsThatOfTheStandard) {
  Key key{};
  std::fill_n(key.begin(), 20, std::byte{0x0b});
  EXPECT_EQ(hex(hmac_sha256(key, as_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  key = {};
  std::ranges::copy(as_bytes("Jefe"), key.begin());
  EXPECT_EQ(hex(hmac_sha256(key, as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(KeyTest, SecretsAreEqualOnlyWhole) {
  EXPECT_TRUE(constant_time_equal(as_bytes("abc"), as_bytes("abc")));
  EXPECT_TRUE(constant_time_equal({}, {}));
  EXPECT_FALSE(constant_time_equal(as_bytes("abc"), as_bytes("abd")));
  EXPECT_FALSE(constant_time_equal(as_bytes("abc"), as_bytes("ab")));
  EXPECT_FALSE(constant_time_equal(as_bytes("abc"), {}));
}

TEST(KeyTest, NoTwoKeysAreEqual) {
  SecureRng rng;
  Key a{};
  Key b{};
  fill_random(a, rng);
  fill_random(b, rng);
  EXPECT_NE(a, b);
  EXPECT_NE(a, Key{});
}

TEST(KeyTest, FilesHoldHexAndANewline) {
  sim::SimClock clock;
  sim::SimDisk disk(1, clock);
  ASSERT_TRUE(make_key_file(disk, "/cluster.key").ok());
  const auto text = io::read_file(disk, "/cluster.key", kMiB);
  ASSERT_TRUE(text.ok());
  ASSERT_EQ(text->size(), 2 * kKeyBytes + 1);
  EXPECT_EQ(text->back(), '\n');
  const auto key = read_key_file(disk, "/cluster.key");
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(text->substr(0, 2 * kKeyBytes), hex(*key));
}

TEST(KeyTest, AnybodyElseWhoMayTouchTheFileMakesItRefused) {
  sim::SimClock clock;
  sim::SimDisk disk(1, clock);
  for (const uint32_t mode : {0600u, 0400u, 0640u, 0604u}) {
    const std::string path = fmt::format("/{:o}.key", mode);
    auto file = disk.open(
        path, {.access = io::AccessMode::write, .create = true, .exclusive = true, .mode = mode});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(as_bytes(std::string(64, 'a')), 0).ok());
    const auto key = read_key_file(disk, path);
    if ((mode & 077) == 0) {
      EXPECT_TRUE(key.ok()) << path;
    } else {
      ASSERT_FALSE(key.ok()) << path;
      EXPECT_EQ(key.error().code, Errc::refused) << path;
    }
  }
}

TEST(KeyTest, AFileHoldsNoMoreThanTheKey) {
  const std::string digits(64, 'a');
  for (const std::string& text : {digits, digits + "\n", digits + "\n\n", digits + "\nx"}) {
    sim::SimClock clock;
    sim::SimDisk disk(1, clock);
    auto file = disk.open("/k", {.access = io::AccessMode::write, .create = true, .mode = 0600});
    ASSERT_TRUE(file.ok() && (*file)->write_at(as_bytes(text), 0).ok());
    EXPECT_EQ(read_key_file(disk, "/k").ok(), text.size() <= 65) << text;
  }
}

}  // namespace
}  // namespace ff::auth
