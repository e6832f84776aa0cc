// Stored values: strings as they are, hashes with a mark, damage.
#include "storage/gateway/redis_value.h"

#include <gtest/gtest.h>

namespace ff::gateway {
namespace {

TEST(RedisValueTest, StringsAreStoredAsTheyAre) {
  EXPECT_EQ(encode_string("value"), "value");
  EXPECT_EQ(decode_string("value"), "value");
  EXPECT_EQ(encode_string(""), "");
  EXPECT_EQ(stored_type(""), ValueType::string);
}

TEST(RedisValueTest, AStringThatLooksLikeAHashStaysAString) {
  HashValue hash;
  hash.set("f", "v");
  for (const std::string& text :
       {hash.encode(), encode_string(hash.encode()), std::string("\0ff-kv\0", 7)}) {
    const std::string stored = encode_string(text);
    EXPECT_EQ(stored_type(stored), ValueType::string);
    EXPECT_EQ(decode_string(stored), text);
  }
}

TEST(RedisValueTest, HashesKeepTheOrderOfTheirFields) {
  HashValue hash;
  EXPECT_TRUE(hash.set("b", "1"));
  EXPECT_TRUE(hash.set("", std::string("\0\xff", 2)));
  EXPECT_TRUE(hash.set("a", ""));
  EXPECT_FALSE(hash.set("b", "2"));
  const std::string stored = hash.encode();
  EXPECT_EQ(stored_type(stored), ValueType::hash);
  HashValue again = HashValue::decode(stored).value();
  EXPECT_EQ(again.fields(), hash.fields());
  EXPECT_EQ(*again.find("b"), "2");
  EXPECT_EQ(again.find("c"), nullptr);
  EXPECT_TRUE(again.remove("b"));
  EXPECT_FALSE(again.remove("b"));
  EXPECT_EQ(again.fields().front().first, "");
}

TEST(RedisValueTest, DamagedHashesAreErrors) {
  HashValue hash;
  hash.set("field", "value");
  const std::string stored = hash.encode();
  for (size_t size = kValueMarkBytes + 1; size < stored.size(); size++) {
    EXPECT_EQ(HashValue::decode(stored.substr(0, size)).error().code, Errc::corrupt) << size;
  }
  std::string huge = stored;
  huge[kValueMarkBytes + 3] = '\xff';  // the size of the field
  EXPECT_FALSE(HashValue::decode(huge).ok());
}

}  // namespace
}  // namespace ff::gateway
