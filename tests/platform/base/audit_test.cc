// The audit log: its lines, that nobody can flood it, and that it survives a rotation.
#include "platform/base/audit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ff {
namespace {

using Json = nlohmann::json;

class StoppedClock final : public Clock {
 public:
  int64_t steady_ns() override { return now_ns; }
  int64_t wall_ns() override { return now_ns; }
  void sleep_ns(int64_t ns) override { now_ns += ns; }
  int64_t now_ns = 1'700'000'000 * kSecond;
};

class AuditTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/ff-audit-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
    const auto set = audit_setup(path(), clock());
    ASSERT_TRUE(set.ok()) << set.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // The log refers to it until the next setup.
  static StoppedClock& clock() {
    static StoppedClock clock;
    return clock;
  }
  std::string path() const { return dir_ + "/audit.log"; }
  std::vector<Json> lines() const {
    std::vector<Json> all;
    std::ifstream file(path());
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  }

  std::string dir_;
};

TEST_F(AuditTest, ALineIsAnObject) {
  audit("login", "mount/host7", {{"address", "10.0.0.7:1\n"}, {"serial", 17}});
  ASSERT_EQ(lines().size(), 1u);
  const Json line = lines()[0];
  EXPECT_EQ(line["event"], "login");
  EXPECT_EQ(line["who"], "mount/host7");
  EXPECT_EQ(line["address"], "10.0.0.7:1\n");
  EXPECT_EQ(line["serial"], 17);
  EXPECT_TRUE(line.contains("time"));
  EXPECT_FALSE(line.contains("left_out"));
  EXPECT_EQ(std::filesystem::status(path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(AuditTest, OneActorCannotFloodItOrHideAnother) {
  for (int i = 0; i < 10'000; i++) audit("refused", "10.0.0.1");
  const auto flooded = lines().size();
  EXPECT_EQ(flooded, static_cast<size_t>(kAuditBurst));
  audit("refused", "10.0.0.2");
  audit("login", "10.0.0.1");
  EXPECT_EQ(lines().size(), flooded + 2);
  clock().now_ns += kSecond;
  audit("refused", "10.0.0.1");
  EXPECT_EQ(lines().back()["left_out"], 10'000 - static_cast<int>(kAuditBurst));
}

TEST_F(AuditTest, ManyActorsCannotFloodItEither) {
  for (int i = 0; i < 100'000; i++) audit("refused", fmt::format("10.0.0.{}", i));
  EXPECT_LE(lines().size(), static_cast<size_t>(kAuditBurstOfAll));
  clock().now_ns += 10 * kSecond;
  audit("login", "mount/host7");
  EXPECT_EQ(lines().back()["who"], "mount/host7");
}

TEST_F(AuditTest, ARenamedFileGetsASuccessor) {
  audit("login", "a");
  std::filesystem::rename(path(), path() + ".1");
  clock().now_ns += 2 * kSecond;
  audit("login", "b");
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0]["who"], "b");
}

TEST_F(AuditTest, AnotherPlaceIsNamed) {
  const auto set = audit_setup("/no/such/audit.log", clock());
  ASSERT_FALSE(set.ok());
  EXPECT_NE(set.error().message.find("/no/such/audit.log"), std::string::npos);
}

}  // namespace
}  // namespace ff
