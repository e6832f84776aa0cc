// Sizes, durations, times and counts: parsing, errors and formatting.
#include "platform/base/units.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "platform/base/rng.h"

namespace ff {
namespace {

constexpr int64_t kMs = kMillisecond;
constexpr int64_t kS = kSecond;
constexpr int64_t kM = 60 * kS;
constexpr int64_t kH = 60 * kM;
constexpr int64_t kD = 24 * kH;

TEST(Units, ReadsSizes) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"17B", 17},
      {"4K", 4096},
      {"4k", 4096},
      {"4M", 4194304},
      {"2G", uint64_t{2} << 30},
      {"3T", uint64_t{3} << 40},
      {"4KiB", 4096},
      {"186MiB", 195035136},
      {"1.5GiB", uint64_t{3} << 29},
      {"1.5G", uint64_t{3} << 29},
      {"4KB", 4000},
      {"4kB", 4000},
      {"7MB", 7'000'000},
      {"10GB", 10'000'000'000},
      {"2TB", 2'000'000'000'000},
      {"1P", uint64_t{1} << 50},
      {"15E", uint64_t{15} << 60},
      {"0.001K", 1},  // 1.024 bytes, rounded down
      {"000000000000000000000000000012", 12},
      {"18446744073709551615", UINT64_MAX},
  };
  for (const auto& [text, bytes] : cases) {
    SCOPED_TRACE(text);
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, bytes);
  }
}

TEST(Units, RefusesOtherSizes) {
  for (const char* text : {"",
                           "-1",
                           "+1",
                           " 1",
                           "1 ",
                           "1 K",
                           "K",
                           "1.5",
                           ".5G",
                           "1.",
                           "1..5K",
                           "1.5.",
                           "4Ki",
                           "4KK",
                           "4iB",
                           "4Bi",
                           "4X",
                           "0x10",
                           "1e3",
                           "nan",
                           "inf",
                           "16E",
                           "17E",
                           "4K\n",
                           "1,5G",
                           "18446744073709551616",
                           "99999999999999999999999",
                           "0.00000000000000000000000000001K"}) {
    SCOPED_TRACE(text);
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, Errc::usage);
    EXPECT_NE(parsed.error().message.find(text), std::string::npos);
    EXPECT_FALSE(parsed.error().hint.empty());
  }
}

TEST(Units, PrintsSizesWithThreeDigits) {
  const std::pair<uint64_t, const char*> cases[] = {
      {0, "0B"},
      {17, "17B"},
      {1023, "1023B"},
      {1024, "1.00KiB"},
      {10240, "10.0KiB"},
      {102400, "100KiB"},
      {195035136, "186MiB"},
      {uint64_t{3} << 29, "1.50GiB"},
      {(uint64_t{1} << 20) - 1, "1.00MiB"},  // not 1024KiB
      {10234, "9.99KiB"},
      {10239, "10.0KiB"},  // not 10.00KiB
      {102399, "100KiB"},  // not 100.0KiB
      {UINT64_MAX, "16.0EiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_size(bytes), text);
}

TEST(Units, PrintedSizesReadBackWithinTheirDigits) {
  SeededRng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bytes = (rng.next() >> 4) >> rng.below(60);
    SCOPED_TRACE(bytes);
    const auto back = parse_size(format_size(bytes));
    ASSERT_TRUE(back.ok());
    const double wrong = static_cast<double>(*back) - static_cast<double>(bytes);
    EXPECT_LE(std::abs(wrong), 0.0051 * static_cast<double>(bytes));
  }
}

TEST(Units, PrintsRates) {
  EXPECT_EQ(format_rate(2.31 * (1 << 30)), "2.31GiB/s");
  EXPECT_EQ(format_rate(0), "0B/s");
  EXPECT_EQ(format_rate(-5), "0B/s");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::quiet_NaN()), "0B/s");
  EXPECT_EQ(format_rate(std::numeric_limits<double>::infinity()), "0B/s");
}

TEST(Units, ReadsDurations) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},          {"30", 30 * kS},        {"500ms", 500 * kMs}, {"30s", 30 * kS},
      {"5m", 5 * kM},    {"5min", 5 * kM},       {"2h", 2 * kH},       {"7d", 7 * kD},
      {"1.5h", 90 * kM}, {"0.1", 100 * kMs},     {"0.1s", 100 * kMs},  {"250us", 250'000},
      {"17ns", 17},      {"36500d", 36500 * kD},
  };
  for (const auto& [text, ns] : cases) {
    SCOPED_TRACE(text);
    const auto parsed = parse_duration_ns(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, ns);
  }
}

TEST(Units, RefusesOtherDurations) {
  for (const char* text : {"", "-1s", "s", "1 s", "5M", "5y", "1h30m", ".5s", "1.s", "36501d",
                           "9999999999999999999d", "99999999999999999999999s", "1e9", "5s "}) {
    SCOPED_TRACE(text);
    const auto parsed = parse_duration_ns(text);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, Errc::usage);
    EXPECT_FALSE(parsed.error().hint.empty());
  }
}

TEST(Units, PrintsDurationsInTwoUnits) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0s"},
      {17, "17ns"},
      {250'000, "250us"},
      {999'999, "1ms"},  // not 1000us
      {12 * kMs, "12ms"},
      {1200 * kMs, "1.2s"},
      {30 * kS, "30s"},
      {59'990 * kMs, "1m"},  // not 60.0s
      {3 * kM + 4 * kS, "3m04s"},
      {5 * kM, "5m"},
      {kH - 1, "1h"},  // not 60m00s
      {2 * kH + 10 * kM, "2h10m"},
      {kD - 1, "1d"},
      {7 * kD, "7d"},
      {7 * kD + 3 * kH, "7d03h"},
      {-90 * kS, "-1m30s"},
      {INT64_MAX, "106752d"},
      {INT64_MIN, "-106752d"},
  };
  for (const auto& [ns, text] : cases) EXPECT_EQ(format_duration(ns), text);
}

TEST(Units, PrintsTimesInUtc) {
  EXPECT_EQ(format_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_time(int64_t{1795224780} * kS), "2026-11-21T01:33:00Z");
  EXPECT_EQ(format_time(-1), "1969-12-31T23:59:59Z");
  EXPECT_EQ(format_time(-kS), "1969-12-31T23:59:59Z");
  EXPECT_EQ(format_time(INT64_MAX), "2262-04-11T23:47:16Z");
}

TEST(Units, GroupsDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(UINT64_MAX), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace ff
