// Metrics: the metric registry of a daemon, exported as Prometheus text (exposition format 0.0.4).
// A registry is injected, never global; its series live as long as the registry. Thread-safe.
//
//   Counter& calls = registry.counter("ff_rpc_calls_total", "Calls answered", {{"method",
//   "read"}}); calls.add();
//
// Names follow Prometheus conventions: ff_FOLDER_WHAT_UNIT, counters end in _total. Label values
// must be few and never hold user data.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ff {

class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(int64_t count) { value_.fetch_add(count, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// A histogram of durations with bucket bounds at powers of two, from 1 µs to about 67 s.
class Histogram {
 public:
  static constexpr size_t kBuckets = 27;  // the last one is +Inf
  void observe_ns(int64_t ns);
  uint64_t count() const;
  // The upper bound in seconds of the bucket that holds the quantile `share` (0 to 1).
  double quantile_seconds(double share) const;

 private:
  friend class Metrics;
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Returns the series with this name and labels, and creates it if it is new. All series of a name
  // have the same kind and help text.
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, const Labels& labels = {});

  std::string text() const;

 private:
  struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    std::string help;
    std::string_view kind;
    std::map<std::string, Series> series;  // by label text
  };
  Series& series(std::string_view name, std::string_view help, std::string_view kind,
                 const Labels& labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace ff
