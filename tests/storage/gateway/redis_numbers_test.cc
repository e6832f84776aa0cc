// Numbers and patterns as Redis has them.
#include "storage/gateway/redis_numbers.h"

#include <gtest/gtest.h>

namespace ff::gateway {
namespace {

TEST(RedisNumbersTest, IntegersAreStrict) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-", "+1", "01", "-0", "-01", " 1", "1 ", "1.0", "1e3", "0x10",
                           "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
  }
}

TEST(RedisNumbersTest, RealsInAndOut) {
  EXPECT_EQ(format_real(parse_real("3.0e3").value()), "3000");
  EXPECT_EQ(format_real(parse_real("10.50").value() + parse_real("0.1").value()), "10.6");
  EXPECT_EQ(format_real(-0.0L), "0");
  EXPECT_EQ(format_real(parse_real("-5.25").value()), "-5.25");
  for (const char* text : {"", " 1", "1 ", "abc", "nan", "1.2.3"}) {
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
  }
}

TEST(RedisNumbersTest, Patterns) {
  const auto matches = [](std::string_view pattern, std::initializer_list<const char*> names) {
    for (const char* name : names) EXPECT_TRUE(matches_pattern(pattern, name)) << pattern << name;
  };
  const auto refuses = [](std::string_view pattern, std::initializer_list<const char*> names) {
    for (const char* name : names) EXPECT_FALSE(matches_pattern(pattern, name)) << pattern << name;
  };
  matches("*", {"", "a", "a/b"});
  matches("h?llo", {"hello", "hallo"});
  refuses("h?llo", {"hllo", "heello"});
  matches("h*llo", {"hllo", "heeeello"});
  matches("h[ae]llo", {"hello", "hallo"});
  refuses("h[ae]llo", {"hillo"});
  matches("h[^e]llo", {"hallo", "h^llo"});
  refuses("h[^e]llo", {"hello"});
  matches("h[a-b]llo", {"hallo", "hbllo"});
  matches("h[b-a]llo", {"hallo"});
  refuses("h[a-b]llo", {"hcllo"});
  matches("a\\*b", {"a*b"});
  refuses("a\\*b", {"axb"});
  matches("[\\]]", {"]"});
  matches("*a*b*c", {"abc", "xaxbxc", "ababcc"});
  refuses("*a*b*c", {"acb", ""});
  refuses("", {"a"});
  matches("", {""});
  // Takes quadratic time at most.
  refuses(std::string(50, '*') + "b" + std::string(50, '*') + "c",
          {std::string(5000, 'b').c_str()});
}

}  // namespace
}  // namespace ff::gateway
