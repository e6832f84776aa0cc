// Key files: created once, readable only by their owner, never shown in messages.
#include "platform/auth/key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "platform/io/system_disk.h"

namespace ff::auth {
namespace {

class KeyFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/ff-key-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void put(const std::string& text, mode_t mode) {
    std::ofstream(path()) << text;
    ::chmod(path().c_str(), mode);
  }
  std::string path() const { return dir_ + "/cluster.key"; }

  io::SystemDisk disk_;
  std::string dir_;
};

TEST_F(KeyFileTest, IsMadeOnceAndReadBack) {
  ASSERT_TRUE(make_key_file(disk_, path()).ok());
  EXPECT_EQ(std::filesystem::status(path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto key = read_key_file(disk_, path());
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(make_key_file(disk_, path()).error().code, Errc::exists);
  EXPECT_EQ(*read_key_file(disk_, path()), *key);
}

TEST_F(KeyFileTest, OthersMayNotReadIt) {
  const std::string digits(64, 'a');
  put(digits, 0640);
  const auto key = read_key_file(disk_, path());
  ASSERT_FALSE(key.ok());
  EXPECT_EQ(key.error().code, Errc::refused);
  EXPECT_NE(key.error().hint.find("chmod 600"), std::string::npos);
}

TEST_F(KeyFileTest, GarbageIsNoKeyAndIsNotShown) {
  for (const std::string& text : {std::string(), std::string("secret\n"), std::string(64, 'g'),
                                  std::string(65, 'a'), std::string(63, 'a')}) {
    put(text, 0600);
    const auto key = read_key_file(disk_, path());
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.error().code, Errc::corrupt);
    EXPECT_EQ(key.error().message.find("secret"), std::string::npos);
  }
  std::filesystem::remove(path());
  EXPECT_EQ(read_key_file(disk_, path()).error().code, Errc::not_found);
}

}  // namespace
}  // namespace ff::auth
