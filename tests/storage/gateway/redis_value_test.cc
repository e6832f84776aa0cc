// Stored values: strings as they are, hashes with a mark, damage.
#include "storage/gateway/redis_value.h"

#include <gtest/gtest.h>

#include "platform/base/text.h"
#include "storage/kvstore/calls.h"

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

// Pages that lie under other names, and heads that read otherwise, are lost.
TEST(RedisValueTest, CollectionsAreFrozen) {
  const PartSpace parts{.slot = 0x1234, .id = 0x0102030405060708, .next_page = 9};
  EXPECT_EQ(hex(as_bytes(parts.name(5))), "123408070605040302010500000000000000");
  EXPECT_EQ(hex(as_bytes(parts.leftover_name())), "12340807060504030201");
  const std::string head = parts.encode_head(ValueType::stream);
  EXPECT_EQ(hex(as_bytes(head)),
            "0066662d6b7600"
            "78"
            "08070605040302010900000000000000");
  EXPECT_EQ(stored_type(head), ValueType::stream);
  EXPECT_EQ(stored_type(parts.encode_head(ValueType::list)), ValueType::list);
  EXPECT_EQ(stored_type(parts.encode_head(ValueType::set)), ValueType::set);
  EXPECT_EQ(kvstore::slot_of_part(parts.name(5)), 0x1234u);
  std::string_view rest = head;
  const auto again = PartSpace::take(rest, 0x1234);
  EXPECT_EQ(again->id, parts.id);
  EXPECT_EQ(again->next_page, 9u);
  EXPECT_TRUE(rest.empty());
  rest = std::string_view(head).substr(1);
  EXPECT_EQ(PartSpace::take(rest, 0).error().code, Errc::corrupt);
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
