// The logs of ended attempts on a node: what is too old or too much goes, and always from the user
// who has the most.
#include "ops/scheduler/ended_logs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "ops/scheduler/attempt_record.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::scheduler {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kLoudUser = 1000, kQuietUser = 1001;

class EndedLogsTest : public testing::Test {
 protected:
  // An attempt that ended so many seconds ago.
  void put(const std::string& name, uint32_t uid, size_t bytes, int64_t age_s) {
    const std::string dir = dir_ / name;
    fs::create_directories(dir);
    std::ofstream(dir + "/attempt.json") << to_json(
        AttemptRecord{.scheduler = "s", .task = 1, .attempt = 1, .uid = uid, .boot = "b"});
    std::ofstream(dir + "/0.log") << std::string(bytes / 2, 'x');
    std::ofstream(dir + "/0.log.1") << std::string(bytes / 2, 'x');
    ASSERT_TRUE(disk_.set_mtime(dir, clock_.wall_ns() - age_s * kSecond).ok());
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }
  EndedLogs logs(LogRetention limits) { return {disk_, clock_, dir_.path(), limits}; }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
};

TEST_F(EndedLogsTest, OldOnesGo) {
  put("1.1", kLoudUser, 10, 100);
  put("2.1", kQuietUser, 10, 3);
  fs::create_directories(dir_ / "something else");
  EndedLogs ended = logs({.keep_ns = 50 * kSecond});
  ended.scan();
  ended.prune();
  EXPECT_EQ(names(), (std::set<std::string>{"2.1", "something else"}));
}

TEST_F(EndedLogsTest, AUserHasALimit) {
  for (int i = 0; i < 6; i++) put(std::to_string(i) + ".1", kLoudUser, kMiB, 100 - i);
  put("9.1", kQuietUser, kMiB, 1000);
  EndedLogs ended = logs({.keep_ns = 3600 * kSecond, .user_bytes = 3 * kMiB + kMiB / 2});
  ended.scan();
  EXPECT_GE(ended.bytes_of(kLoudUser), 6 * kMiB);
  ended.prune();
  EXPECT_LE(ended.bytes_of(kLoudUser), 3 * kMiB + kMiB / 2);
  EXPECT_EQ(names(), (std::set<std::string>{"3.1", "4.1", "5.1", "9.1"}));
  // The next one that ends.
  put("6.1", kLoudUser, kMiB, 0);
  ended.add("6.1");
  ended.prune();
  EXPECT_EQ(names(), (std::set<std::string>{"4.1", "5.1", "6.1", "9.1"}));
}

TEST_F(EndedLogsTest, AllTogetherHaveALimit) {
  for (uint32_t user = 0; user < 8; user++) {
    put(std::to_string(user) + ".1", kLoudUser + user, kMiB * 3 / 4, 100 - user);
  }
  put("50.1", kLoudUser + 7, kMiB / 8, 10);
  EndedLogs ended = logs({.keep_ns = 3600 * kSecond, .user_bytes = kMiB});  // 4 MiB in all
  ended.scan();
  ended.prune();
  const auto left = names();
  EXPECT_EQ(left.size(), 6u);
  EXPECT_FALSE(left.contains("7.1"));  // of the user who has the most
  EXPECT_TRUE(left.contains("50.1"));
  for (const char* const gone : {"0.1", "1.1"}) EXPECT_FALSE(left.contains(gone)) << gone;
}

TEST_F(EndedLogsTest, ManySmallOnesDriveOutTheirOwn) {
  put("1.1", kQuietUser, 10, 1000);
  for (int i = 10; i < 40; i++) put(std::to_string(i) + ".1", kLoudUser, 10, 100 - i);
  EndedLogs ended = logs({.keep_ns = 3600 * kSecond, .attempts = 5});
  ended.scan();
  ended.prune();
  EXPECT_EQ(names(), (std::set<std::string>{"1.1", "36.1", "37.1", "38.1", "39.1"}));
}

// Somebody else may remove a folder, or replace it.
TEST_F(EndedLogsTest, TheFolderIsTheTruth) {
  put("1.1", kLoudUser, kMiB, 10);
  EndedLogs ended = logs({.keep_ns = 3600 * kSecond});
  ended.scan();
  EXPECT_GE(ended.bytes_of(kLoudUser), kMiB);
  fs::remove_all(dir_ / "1.1");
  ended.scan();
  EXPECT_EQ(ended.bytes_of(kLoudUser), 0u);
  put("1.1", kLoudUser, kMiB, 10);
  ended.add("1.1");
  put("1.1", kQuietUser, 10, 5);
  ended.add("1.1");
  EXPECT_EQ(ended.bytes_of(kLoudUser), 0u);
  EXPECT_GT(ended.bytes_of(kQuietUser), 0u);
}

}  // namespace
}  // namespace ff::scheduler
