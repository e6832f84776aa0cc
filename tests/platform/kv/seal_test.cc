// Checksums of stored values: what was changed on a disk is found, whichever bit it was.
#include "platform/kv/seal.h"

#include <gtest/gtest.h>

namespace ff::kv {
namespace {

TEST(SealTest, GivesBackWhatWasSealedAndNothingElse) {
  for (const std::string& value : {std::string(), std::string("v"), std::string(1000, '\0')}) {
    const std::string stored = sealed("key", value);
    EXPECT_EQ(stored.size(), value.size() + kSealBytes);
    EXPECT_EQ(unsealed("key", stored).value(), value);
    EXPECT_FALSE(seal_fits("kez", stored));
    for (size_t bit = 0; bit < stored.size() * 8; bit++) {
      std::string flipped = stored;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_FALSE(seal_fits("key", flipped)) << bit;
      // It does not pass for one of before, either.
      ASSERT_FALSE(is_before_seals(flipped)) << bit;
    }
  }
}

TEST(SealTest, AnErrorNamesTheRecord) {
  const std::string key = std::string("DENT\0\0\0\0\0\0\0\x07name", 16);
  const auto damaged = unsealed(key, "short");
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, Errc::corrupt);
  EXPECT_EQ(damaged.error().message, "the store's record DENT 7 \"name\" is damaged");
  EXPECT_EQ(key_text("RENM"), "\"RENM\"");
}

TEST(SealTest, ValuesOfBeforeAreTold) {
  EXPECT_TRUE(is_before_seals(""));
  EXPECT_TRUE(is_before_seals("a value of before"));
  EXPECT_FALSE(is_before_seals(sealed("key", "value")));
}

}  // namespace
}  // namespace ff::kv
