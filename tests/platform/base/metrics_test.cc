// The metric registry and its output in the Prometheus exposition format 0.0.4.
#include "platform/base/metrics.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace ff {
namespace {

TEST(MetricsTest, TextHasEverySeriesOnce) {
  Metrics metrics;
  metrics.counter("ff_calls_total", "Calls answered", {{"method", "read"}, {"code", "ok"}}).add(3);
  metrics.counter("ff_calls_total", "Calls answered", {{"method", "read"}, {"code", "ok"}}).add();
  metrics.counter("ff_calls_total", "Calls answered", {{"method", "a\"b\\c\nd"}}).add();
  metrics.gauge("ff_open", "Open connections").set(-2);
  EXPECT_EQ(metrics.text(),
            "# HELP ff_calls_total Calls answered\n"
            "# TYPE ff_calls_total counter\n"
            "ff_calls_total{method=\"a\\\"b\\\\c\\nd\"} 1\n"
            "ff_calls_total{method=\"read\",code=\"ok\"} 4\n"
            "# HELP ff_open Open connections\n"
            "# TYPE ff_open gauge\n"
            "ff_open -2\n");
}

TEST(MetricsTest, HistogramsAreCumulative) {
  Metrics metrics;
  Histogram& times = metrics.histogram("ff_seconds", "Time", {{"m", "x"}});
  times.observe_ns(0);
  times.observe_ns(1000);              // 1 µs
  times.observe_ns(1001);              // 2 µs
  times.observe_ns(3 * kMillisecond);  // 4.096 ms
  times.observe_ns(int64_t{1} << 50);
  EXPECT_EQ(times.count(), 5u);
  EXPECT_DOUBLE_EQ(times.quantile_seconds(0.4), 1e-6);
  EXPECT_DOUBLE_EQ(times.quantile_seconds(0.6), 2e-6);
  EXPECT_DOUBLE_EQ(times.quantile_seconds(0.8), 4.096e-3);
  EXPECT_TRUE(std::isinf(times.quantile_seconds(1)));
  const std::string text = metrics.text();
  EXPECT_NE(text.find("ff_seconds_bucket{m=\"x\",le=\"1e-06\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("ff_seconds_bucket{m=\"x\",le=\"2e-06\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("ff_seconds_bucket{m=\"x\",le=\"+Inf\"} 5\n"), std::string::npos);
  EXPECT_NE(text.find("ff_seconds_count{m=\"x\"} 5\n"), std::string::npos);
}

TEST(MetricsTest, ThreadsCountTogether) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&metrics] {
      for (int n = 0; n < 1000; n++) metrics.counter("ff_n_total", "N").add();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(metrics.counter("ff_n_total", "N").value(), 4000u);
}

}  // namespace
}  // namespace ff
