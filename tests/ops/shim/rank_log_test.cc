// The log of a rank, on a simulated disk with a manual clock: lines and timestamps, parts of long
// lines, rotation, and dropped output.
#include "ops/shim/rank_log.h"

#include <gtest/gtest.h>

#include <string>

#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::shim {
namespace {

constexpr const char* kPath = "/log/a";
const std::string kLine = std::string(999, 'x') + '\n';
const std::string kStart = "2026-01-01T00:00:00.000000";

class RankLogTest : public testing::Test {
 protected:
  RankLogTest() { EXPECT_TRUE(disk_.make_dir("/log", 0755).ok()); }

  RankLog log(LogLimits limits = {}) {
    limits.path = kPath;
    return RankLog(disk_, clock_, limits);
  }
  std::string file(const std::string& suffix = "") { return io::get(disk_, kPath + suffix); }
  uint64_t size(const std::string& suffix = "") {
    const auto info = disk_.info(kPath + suffix);
    return info ? info->size : 0;
  }

  sim::SimClock clock_;
  sim::SimDisk disk_{1, clock_};
};

TEST_F(RankLogTest, EveryLineHasItsTime) {
  RankLog log = this->log();
  log.write("one\ntwo\n");
  clock_.advance(1'500'042'000);
  log.write("\nthree \x01\xff\r\n");
  EXPECT_EQ(file(), kStart + "Z one\n" + kStart + "Z two\n2026-01-01T00:00:01.500042Z \n" +
                        "2026-01-01T00:00:01.500042Z three \x01\xff\r\n");
  EXPECT_EQ(log.next_ns(), std::nullopt);
  EXPECT_EQ(log.dropped(), 0u);
}

TEST_F(RankLogTest, ALineWithoutItsEndIsWrittenAfterASecond) {
  RankLog log = this->log();
  log.write("50 %");
  EXPECT_EQ(log.next_ns(), clock_.steady_ns() + kPartialLineNs);
  log.tick();
  EXPECT_EQ(size(), 0u);
  clock_.advance(kPartialLineNs);
  log.tick();
  EXPECT_EQ(file(), "2026-01-01T00:00:01.000000Z 50 %\n");
  EXPECT_EQ(log.next_ns(), std::nullopt);
  log.write(" done\nnext\n");
  EXPECT_EQ(file(),
            "2026-01-01T00:00:01.000000Z 50 %\n2026-01-01T00:00:01.000000+00:00  done\n"
            "2026-01-01T00:00:01.000000Z next\n");
}

TEST_F(RankLogTest, OnlyTheNewlineWasMissing) {
  RankLog log = this->log();
  log.write("x");
  clock_.advance(kPartialLineNs);
  log.tick();
  log.write("\ny\n");
  EXPECT_EQ(file(), "2026-01-01T00:00:01.000000Z x\n2026-01-01T00:00:01.000000Z y\n");
}

TEST_F(RankLogTest, TheLastLineNeedsNoEnd) {
  RankLog log = this->log();
  log.write("last words");
  log.finish();
  EXPECT_EQ(file(), kStart + "Z last words\n");
}

TEST_F(RankLogTest, LongLinesAreCut) {
  RankLog log = this->log();
  const std::string exact(kLineChunkBytes, 'a'), longer(2 * kLineChunkBytes + 1, 'b');
  log.write(exact + "\n");
  log.write(longer.substr(0, 5));
  log.write(longer.substr(5) + "\n");
  EXPECT_EQ(file(), kStart + "Z " + exact + "\n" + kStart + "Z " +
                        longer.substr(0, kLineChunkBytes) + "\n" + kStart + "+00:00 " +
                        longer.substr(0, kLineChunkBytes) + "\n" + kStart + "+00:00 b\n");
}

TEST_F(RankLogTest, FilesAreTurned) {
  RankLog log = this->log({.file_bytes = 64 * kKiB, .files = 3, .rate = 0});
  for (int i = 0; i < 1000; i++) log.write(kLine);
  for (const char* const suffix : {"", ".1", ".2"}) {
    EXPECT_GT(size(suffix), 0u);
    EXPECT_LE(size(suffix), 64 * kKiB);
    EXPECT_TRUE(file(suffix).ends_with("x\n"));
  }
  EXPECT_EQ(file(".3"), "(not_found)");
  EXPECT_EQ(log.dropped(), 0u);
}

TEST_F(RankLogTest, AFileSaysHowMuchCameBeforeIt) {
  RankLog log = this->log({.file_bytes = 64 * kKiB, .files = 3, .rate = 0});
  uint64_t before = 0;
  for (int turned = 0; turned < 5; turned++) {
    log.write(kLine);
    const std::string text = file();
    const auto told = bytes_before(text.substr(0, text.find('\n')));
    EXPECT_EQ(told, turned == 0 ? std::nullopt : std::optional(before));
    uint64_t had = size();
    for (uint64_t now = had; now >= had; now = size()) {
      had = now;
      log.write(kLine);
    }
    before += had;
  }
  EXPECT_EQ(bytes_before(kStart + "Z ff: here begins byte 12"), std::nullopt);
  EXPECT_EQ(bytes_before(kStart + "-00:00 ff: here begins byte 12"), 12u);
  EXPECT_EQ(bytes_before(kStart + "-00:00 ff: here begins byte 12x"), std::nullopt);
}

TEST_F(RankLogTest, OneFileAloneBeginsAnew) {
  RankLog log = this->log({.file_bytes = 64 * kKiB, .files = 1, .rate = 0});
  for (int i = 0; i < 1000; i++) log.write(kLine);
  EXPECT_LE(size(), 64 * kKiB);
  EXPECT_EQ(file(".1"), "(not_found)");
}

TEST_F(RankLogTest, GoesOnBehindAnotherAttempt) {
  log().write("one\n");
  log().write("two\n");
  EXPECT_EQ(file(), kStart + "Z one\n" + kStart + "Z two\n");
  ASSERT_TRUE(io::put(disk_, kPath, "half a li").ok());
  log().write("three\n");
  EXPECT_EQ(file(), "half a li\n" + kStart + "Z three\n");
}

TEST_F(RankLogTest, WhatIsOverTheRateIsCountedAndTold) {
  RankLog log = this->log({.rate = 1000, .burst = 64 * kKiB});
  for (int i = 0; i < 1000; i++) log.write(kLine);
  EXPECT_LE(size(), 64 * kKiB);
  const uint64_t dropped = log.dropped();
  EXPECT_GT(dropped, 900'000u);
  EXPECT_EQ(file().find("-00:00"), std::string::npos);
  // Not a message for each dropped line: one when half of the burst is available again.
  const auto next = log.next_ns();
  ASSERT_TRUE(next.has_value());
  clock_.advance(*next - clock_.steady_ns());
  log.tick();
  const std::string told =
      "-00:00 ff: " + std::to_string(dropped) + " bytes of output were dropped here: more than 1";
  EXPECT_NE(file().find(told), std::string::npos) << file().substr(size() - 100);
  EXPECT_EQ(log.next_ns(), std::nullopt);
  log.write("again\n");
  EXPECT_TRUE(file().ends_with("Z again\n"));
  log.finish();
  EXPECT_EQ(log.dropped(), dropped);
  EXPECT_TRUE(file().ends_with("Z again\n"));
}

TEST_F(RankLogTest, WhatWasDroppedLastIsToldAtTheEnd) {
  RankLog log = this->log({.rate = 1000, .burst = 64 * kKiB});
  for (int i = 0; i < 100; i++) log.write(kLine);
  log.finish();
  EXPECT_NE(file().find("-00:00 ff: " + std::to_string(log.dropped())), std::string::npos);
}

TEST_F(RankLogTest, AFullDiskIsGoneOnWithOnceThereIsSpace) {
  RankLog log = this->log({.rate = 0});
  disk_.set_capacity(64 * kKiB);
  for (int i = 0; i < 1000; i++) log.write(kLine);
  EXPECT_LE(size(), 64 * kKiB);
  const uint64_t dropped = log.dropped();
  EXPECT_GT(dropped, 900'000u);
  // The time of the last output is known nevertheless.
  clock_.advance(10 * kSecond);
  log.write(std::string(4999, 'y') + '\n');
  EXPECT_EQ(disk_.info(kPath)->mtime_ns, clock_.wall_ns());
  disk_.set_capacity(64 * kMiB);
  log.write("too early\n");
  const auto next = log.next_ns();
  ASSERT_TRUE(next.has_value());
  clock_.advance(*next - clock_.steady_ns());
  log.tick();
  log.write("after\n");
  const std::string text = file();
  EXPECT_TRUE(text.ends_with("Z after\n"));
  EXPECT_NE(text.find("No space left"), std::string::npos);
  EXPECT_NE(text.find(std::to_string(log.dropped()) + " bytes"), std::string::npos);
  EXPECT_EQ(log.dropped(), dropped + 5000 + 10);
}

TEST_F(RankLogTest, AFolderThatIsNotThereLosesAll) {
  LogLimits limits;
  limits.path = "/nowhere/a";
  RankLog log(disk_, clock_, limits);
  for (int i = 0; i < 10; i++) {
    log.write("12345\n");
    clock_.advance(kSecond);
    log.tick();
  }
  log.finish();
  EXPECT_EQ(log.dropped(), 60u);
}

TEST(ParseKernelLogLine, TellsItsThreeKinds) {
  const std::string text = kStart + "Z a b";
  const auto line = parse_rank_log_line(text);
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->time, kStart);
  EXPECT_EQ(line->text, "a b");
  EXPECT_FALSE(line->continues || line->own);
  EXPECT_TRUE(parse_rank_log_line(kStart + "+00:00 x")->continues);
  EXPECT_TRUE(parse_rank_log_line(kStart + "-00:00 x")->own);
  EXPECT_TRUE(parse_rank_log_line(kStart + "Z ").has_value());
  for (const std::string none : {"", " ", "x y", "Z x"}) {
    EXPECT_FALSE(parse_rank_log_line(none).has_value()) << none;
  }
  EXPECT_FALSE(parse_rank_log_line(kStart + " x").has_value());
  EXPECT_FALSE(parse_rank_log_line(kStart + "+01:00 x").has_value());
}

}  // namespace
}  // namespace ff::shim
