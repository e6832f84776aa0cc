// Log lines: both formats, levels, and hostile text in values.
#include "platform/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/units.h"

namespace ff {
namespace {

std::string logged(LogOptions options, const std::function<void()>& act) {
  log_setup(options);
  testing::internal::CaptureStderr();
  act();
  std::string out = testing::internal::GetCapturedStderr();
  log_setup({});
  return out;
}

const std::string kStamp = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)";

TEST(Log, TextLine) {
  const std::string line = logged({}, [] {
    log_info("chain promoted", {{"chain", 12}, {"target", 3u}, {"ratio", 0.5}, {"last", true}});
  });
  EXPECT_TRUE(std::regex_match(
      line, std::regex(kStamp + " info chain promoted chain=12 target=3 ratio=0.5 last=true\n")))
      << line;
}

TEST(Log, StampsInUtcWhereverItRuns) {
  ::setenv("TZ", "EAST-7:30", 1);
  ::tzset();
  SystemClock clock;
  constexpr size_t kToMinutes = 16;  // "2026-11-21T01:33"
  const std::string before = format_time(clock.wall_ns()).substr(0, kToMinutes);
  const std::string line = logged({}, [] { log_info("x"); });
  const std::string after = format_time(clock.wall_ns()).substr(0, kToMinutes);
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_TRUE(line.starts_with(before) || line.starts_with(after)) << line;
}

TEST(Log, JsonLine) {
  const std::string line = logged({.json = true}, [] {
    log_error("disk lost", {{"path", "/data/\"x\""},
                            {"errno", -5},
                            {"ok", false},
                            {"rate", std::numeric_limits<double>::infinity()}});
  });
  EXPECT_TRUE(std::regex_match(
      line, std::regex(R"(\{"time":")" + kStamp + R"(","level":"error","message":"disk lost",)" +
                       R"("path":"/data/\\"x\\"","errno":-5,"ok":false,"rate":"inf"\}\n)")))
      << line;
}

TEST(Log, HostileValuesStayOnOneLine) {
  const std::string name = "a\x1b[2J\r\n%v %n{}</script>";
  const auto act = [&] { log_warning("odd name", {{"name", name}, {"empty", ""}, {"q", "a\"b"}}); };
  const std::string text = logged({}, act);
  EXPECT_NE(text.find(R"( warning odd name name="a\x1b[2J\x0d\x0a%v %n{}</script>" empty="")"
                      R"( q="a\"b")"
                      "\n"),
            std::string::npos)
      << text;
  const std::string json = logged({.json = true}, act);
  EXPECT_NE(json.find(R"("name":"a\u001b[2J\u000d\n%v %n{}\u003c/script>","empty":"")"),
            std::string::npos)
      << json;
  EXPECT_EQ(json.find('\n'), json.size() - 1);
}

TEST(Log, LevelsBelowAreDropped) {
  const auto all = [] {
    log_debug("one");
    log_info("two");
    log_warning("three");
    log_error("four");
  };
  const auto lines = [](const std::string& out) {
    return std::count(out.begin(), out.end(), '\n');
  };
  EXPECT_EQ(lines(logged({.level = LogLevel::debug}, all)), 4);
  EXPECT_EQ(lines(logged({}, all)), 3);
  EXPECT_EQ(lines(logged({.level = LogLevel::error}, all)), 1);
}

TEST(Log, LinesOfSeveralThreadsStayWhole) {
  const std::string out = logged({}, [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) log_info("line", {{"thread", t}, {"i", i}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::regex whole(kStamp + R"( info line thread=\d i=\d+\n)");
  const auto matches = std::distance(std::sregex_iterator(out.begin(), out.end(), whole), {});
  EXPECT_EQ(matches, 800);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 800);
}

}  // namespace
}  // namespace ff
