// Use of the nodes in service over the last day: node-seconds in spans of ten minutes. A span
// during which no scheduler ran is missing.
#pragma once

#include <cstdint>
#include <map>

#include "ops/scheduler/scheduler.pb.h"
#include "platform/base/clock.h"

namespace ff::scheduler {

class Utilization {
 public:
  static constexpr int64_t kSpanNs = 600 * kSecond;
  static constexpr int64_t kSpans = 144;

  struct Span {
    int64_t busy_ns = 0, in_service_ns = 0;  // of nodes
  };
  struct Nodes {
    uint64_t busy = 0, in_service = 0;
  };
  // Adds a sample of `for_ns` that ends at `wall_ns`. Drops spans older than a day.
  void add(int64_t wall_ns, int64_t for_ns, Nodes nodes);
  // By begin of the span, wall time.
  const std::map<int64_t, Span>& spans() const { return spans_; }

  void load(const wire::Use& use);
  wire::Use record() const;

 private:
  std::map<int64_t, Span> spans_;
};

}  // namespace ff::scheduler
