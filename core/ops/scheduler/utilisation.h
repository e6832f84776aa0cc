// How much of the nodes in service was in use: node-seconds, in spans of ten minutes over the last
// day. A span in which no scheduler ran is not there.
#pragma once

#include <cstdint>
#include <map>

#include "ops/scheduler/scheduler.pb.h"
#include "platform/base/clock.h"

namespace ff::scheduler {

class Utilisation {
 public:
  static constexpr int64_t kSpanNs = 600 * kSecond;
  static constexpr int64_t kSpans = 144;

  struct Span {
    int64_t busy_ns = 0, in_service_ns = 0;  // of nodes
  };
  struct Nodes {
    uint64_t busy = 0, in_service = 0;
  };
  // So many nodes, for the time that ends at `wall_ns`. What is older than a day is dropped.
  void add(int64_t wall_ns, int64_t for_ns, Nodes nodes);
  // By the beginning of the span, in wall time.
  const std::map<int64_t, Span>& spans() const { return spans_; }

  void load(const wire::Use& use);
  wire::Use kept() const;

 private:
  std::map<int64_t, Span> spans_;
};

}  // namespace ff::scheduler
