// Key files: created once, readable only by their owner, never shown in messages.
#include "platform/auth/key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
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

TEST_F(KeyFileTest, NoBitOfAnotherUsersModeIsAllowed) {
  for (const mode_t mode : {0604, 0640, 0620, 0602, 0610, 0601, 0444, 0777}) {
    put(std::string(64, 'a'), mode);
    EXPECT_EQ(read_key_file(disk_, path()).error().code, Errc::refused) << mode;
  }
  for (const mode_t mode : {0600, 0400, 0700}) {
    put(std::string(64, 'a'), mode);
    EXPECT_TRUE(read_key_file(disk_, path()).ok()) << mode;
  }
}

TEST_F(KeyFileTest, ItBelongsToThisUserOrRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root changes owners";
  put(std::string(64, 'a'), 0600);
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  const auto of_nobody = read_key_file(disk_, path());
  ASSERT_FALSE(of_nobody.ok());
  EXPECT_EQ(of_nobody.error().code, Errc::refused);
  EXPECT_NE(of_nobody.error().message.find("belongs to user 65534"), std::string::npos);
  // The user himself may read it, and also what root hands to him.
  ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  const bool own = read_key_file(disk_, path()).ok();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(own);
}

// systemd gives one user access by an access control list; its mask looks like rights of the group.
TEST_F(KeyFileTest, ACredentialMayHaveAnAccessControlList) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root plays systemd";
  put(std::string(64, 'a'), 0440);
  const auto with = [this](const std::string& dir) {
    ::setenv("CREDENTIALS_DIRECTORY", dir.c_str(), 1);
    const bool read = read_key_file(disk_, path()).ok();
    ::unsetenv("CREDENTIALS_DIRECTORY");
    return read;
  };
  EXPECT_TRUE(with(dir_));
  EXPECT_FALSE(with(dir_ + "/below"));
  EXPECT_FALSE(with(""));
  EXPECT_FALSE(with("/"));
  put(std::string(64, 'a'), 0444);
  EXPECT_FALSE(with(dir_));
  put(std::string(64, 'a'), 0440);
  ASSERT_EQ(::chown(path().c_str(), 0, 65534), 0);
  EXPECT_FALSE(with(dir_));
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
