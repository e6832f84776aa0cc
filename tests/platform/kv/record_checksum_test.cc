// Checksums of stored values: every bit flip is detected.
#include "platform/kv/record_checksum.h"

#include <gtest/gtest.h>

namespace ff::kv {
namespace {

TEST(SealTest, GivesBackWhatWasSealedAndNothingElse) {
  for (const std::string& value : {std::string(), std::string("v"), std::string(1000, '\0')}) {
    const std::string stored = with_checksum("key", value);
    EXPECT_EQ(stored.size(), value.size() + kRecordChecksumBytes);
    EXPECT_EQ(verified_value("key", stored).value(), value);
    EXPECT_FALSE(checksum_matches("kez", stored));
    for (size_t bit = 0; bit < stored.size() * 8; bit++) {
      std::string flipped = stored;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_FALSE(checksum_matches("key", flipped)) << bit;
      // It does not pass for one of before, either.
      ASSERT_FALSE(lacks_checksum(flipped)) << bit;
    }
  }
}

TEST(SealTest, AnErrorNamesTheRecord) {
  const std::string key = std::string("DENT\0\0\0\0\0\0\0\x07name", 16);
  const auto damaged = verified_value(key, "short");
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, Errc::corrupt);
  EXPECT_EQ(damaged.error().message, "the store's record DENT 7 \"name\" is damaged");
  EXPECT_EQ(key_text("RENM"), "\"RENM\"");
}

TEST(SealTest, ValuesOfBeforeAreTold) {
  EXPECT_TRUE(lacks_checksum(""));
  EXPECT_TRUE(lacks_checksum("a value of before"));
  EXPECT_FALSE(lacks_checksum(with_checksum("key", "value")));
}

}  // namespace
}  // namespace ff::kv
