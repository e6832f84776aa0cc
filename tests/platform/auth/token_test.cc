// Tokens: the key of a user against a known answer, the exact text format, and token files.
#include "platform/auth/token.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "platform/base/text.h"
#include "platform/io/system_disk.h"

namespace ff::auth {
namespace {

constexpr std::string_view kDigits =
    "8ff0b0ee812143a5b5ac9f5a8f64c41b837c4c660b6ad2478644b0f9ef485850";

Key counted_key() {
  Key key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<std::byte>(i);
  return key;
}

// Computed with Python's hmac, from the formula of token.h.
TEST(TokenTest, TheKeyOfAUserIsThatOfTheFormula) {
  EXPECT_EQ(hex(user_key(counted_key(), {1000, 7})), kDigits);
  EXPECT_NE(user_key(counted_key(), {1000, 8}), user_key(counted_key(), {1000, 7}));
  EXPECT_NE(user_key(counted_key(), {1001, 7}), user_key(counted_key(), {1000, 7}));
  EXPECT_NE(user_key(Key{}, {1000, 7}), user_key(counted_key(), {1000, 7}));
}

TEST(TokenTest, TheTextIsReadBack) {
  const std::string text = format_token(make_token(counted_key(), {1000, 7}));
  EXPECT_EQ(text, fmt::format("ff1-1000-7-{}", kDigits));
  for (const TokenId user : {TokenId{1000, 7}, TokenId{0, 0}, TokenId{UINT32_MAX, UINT64_MAX}}) {
    const Token token = make_token(counted_key(), user);
    const auto parsed = parse_token(format_token(token));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->user, user);
    EXPECT_EQ(parsed->key, token.key);
  }
}

TEST(TokenTest, WhatIsNotATokenIsRefusedAndNotShown) {
  const std::string key(kDigits);
  const std::string upper = "8FF0" + key.substr(4);
  const std::string texts[] = {"",
                               key,
                               "ff1-1000-7",
                               "ff1-1000-7-",
                               "ff2-1000-7-" + key,
                               "ff1--7-" + key,
                               "ff1-1000--" + key,
                               "ff1-01000-7-" + key,
                               "ff1-1000-07-" + key,
                               "ff1-+1000-7-" + key,
                               "ff1-1000-7-" + upper,
                               "ff1-1000-7-" + key.substr(1),
                               "ff1-1000-7-" + key + "0",
                               "ff1-1000-7-" + key + "-",
                               "ff1-1000-7-" + key + "\n",
                               " ff1-1000-7-" + key,
                               "ff1-4294967296-7-" + key,
                               "ff1-1000-18446744073709551616-" + key,
                               "ff1-1000-7-g" + key.substr(1)};
  for (const std::string& text : texts) {
    const auto parsed = parse_token(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Errc::corrupt) << text;
    EXPECT_EQ(parsed.error().message.find("f0b0ee"), std::string::npos);
  }
}

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/ff-token-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  Result<Token> read(const std::string& text, mode_t mode = 0600) {
    std::filesystem::remove(path());
    std::ofstream(path()) << text;
    ::chmod(path().c_str(), mode);
    return read_token_file(disk_, path());
  }
  std::string path() const { return dir_ + "/token"; }

  io::SystemDisk disk_;
  std::string dir_;
  // The longest possible token.
  const Token token_ = make_token(counted_key(), {UINT32_MAX, UINT64_MAX});
};

TEST_F(TokenFileTest, HoldsTheLineAndNoMore) {
  for (const char* const end : {"", "\n"}) {
    const auto read_back = read(format_token(token_) + end);
    ASSERT_TRUE(read_back.ok()) << read_back.error().message;
    EXPECT_EQ(read_back->user, token_.user);
    EXPECT_EQ(read_back->key, token_.key);
  }
  for (const std::string& text : {std::string(), format_token(token_) + "\n\n",
                                  format_token(token_) + "\nx", std::string(1000, 'a')}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::corrupt);
    EXPECT_EQ(refused.error().message.find(path()), 0u) << refused.error().message;
    EXPECT_EQ(refused.error().message.find(hex(token_.key).substr(0, 6)), std::string::npos);
  }
  EXPECT_EQ(read_token_file(disk_, dir_ + "/absent").error().code, Errc::not_found);
}

TEST_F(TokenFileTest, OthersMayNotReadIt) {
  for (const uint32_t mode : {0640u, 0604u, 0644u, 0660u}) {
    const auto refused = read(format_token(token_) + "\n", mode);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_NE(refused.error().message.find("others may read this token"), std::string::npos);
    EXPECT_NE(refused.error().hint.find("chmod 600 " + path()), std::string::npos);
  }
  EXPECT_TRUE(read(format_token(token_), 0400).ok());
}

}  // namespace
}  // namespace ff::auth
