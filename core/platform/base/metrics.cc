// metrics.cc: the registry and its text form.
#include "platform/base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "platform/base/check.h"

namespace ff {

namespace {

// Upper bound of a bucket in seconds.
double bound(size_t bucket) { return static_cast<double>(uint64_t{1} << bucket) * 1e-6; }

std::string label_text(const Metrics::Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) {
    text += fmt::format("{}{}=\"", text.empty() ? "" : ",", key);
    for (const char c : value) {
      if (c == '\\' || c == '"') text += '\\';
      text += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    text += '"';
  }
  return text;
}

std::string braced(const std::string& labels) {
  return labels.empty() ? "" : fmt::format("{{{}}}", labels);
}

}  // namespace

void Histogram::observe_ns(int64_t ns) {
  const auto micros = static_cast<uint64_t>(std::max<int64_t>(ns, 0) + 999) / 1000;
  const size_t bucket = micros <= 1 ? 0 : static_cast<size_t>(std::bit_width(micros - 1));
  buckets_[std::min(bucket, kBuckets - 1)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<uint64_t>(std::max<int64_t>(ns, 0)), std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
  return total;
}

double Histogram::quantile_seconds(double share) const {
  const auto wanted = static_cast<double>(count()) * share;
  uint64_t seen = 0;
  for (size_t i = 0; i + 1 < kBuckets; i++) {
    seen += buckets_[i].load(std::memory_order_relaxed);
    if (static_cast<double>(seen) >= wanted) return bound(i);
  }
  return std::numeric_limits<double>::infinity();
}

Metrics::Series& Metrics::series(std::string_view name, std::string_view help,
                                 std::string_view kind, const Labels& labels) {
  auto family = families_.find(name);
  if (family == families_.end()) {
    family = families_.emplace(std::string(name), Family{std::string(help), kind, {}}).first;
  }
  FF_CHECK(family->second.kind == kind);
  return family->second.series[label_text(labels)];
}

Counter& Metrics::counter(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& found = series(name, help, "counter", labels).counter;
  if (!found) found = std::make_unique<Counter>();
  return *found;
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& found = series(name, help, "gauge", labels).gauge;
  if (!found) found = std::make_unique<Gauge>();
  return *found;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  auto& found = series(name, help, "histogram", labels).histogram;
  if (!found) found = std::make_unique<Histogram>();
  return *found;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, family.kind);
    for (const auto& [labels, one] : family.series) {
      if (one.counter) out += fmt::format("{}{} {}\n", name, braced(labels), one.counter->value());
      if (one.gauge) out += fmt::format("{}{} {}\n", name, braced(labels), one.gauge->value());
      if (!one.histogram) continue;
      uint64_t total = 0;
      const std::string comma = labels.empty() ? "" : ",";
      for (size_t i = 0; i < Histogram::kBuckets; i++) {
        total += one.histogram->buckets_[i].load(std::memory_order_relaxed);
        const std::string le =
            i + 1 == Histogram::kBuckets ? "+Inf" : fmt::format("{:.6g}", bound(i));
        out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, le, total);
      }
      const auto sum = static_cast<double>(one.histogram->sum_ns_.load(std::memory_order_relaxed));
      out += fmt::format("{}_sum{} {:.9g}\n{}_count{} {}\n", name, braced(labels), sum * 1e-9, name,
                         braced(labels), total);
    }
  }
  return out;
}

}  // namespace ff
