// utilization.cc: sums per span; a sample counts for the span in which it ends. The clock may be
// set meanwhile.
#include "ops/scheduler/utilization.h"

#include <algorithm>

namespace ff::scheduler {

void Utilization::add(int64_t wall_ns, int64_t for_ns, Nodes nodes) {
  const int64_t begin_ns = wall_ns - wall_ns % kSpanNs;
  Span& span = spans_[begin_ns];
  // Nothing is known about the time without samples.
  for_ns = std::clamp<int64_t>(for_ns, 0, kSpanNs);
  span.busy_ns += static_cast<int64_t>(nodes.busy) * for_ns;
  span.in_service_ns += static_cast<int64_t>(nodes.in_service) * for_ns;
  std::erase_if(spans_, [&](const auto& one) {
    return one.first <= begin_ns - kSpans * kSpanNs || one.first > begin_ns;
  });
}

void Utilization::load(const wire::Use& use) {
  for (const auto& span : use.spans()) spans_[span.begin()] = {span.busy(), span.in_service()};
}

wire::Use Utilization::record() const {
  wire::Use use;
  for (const auto& [begin_ns, span] : spans_) {
    auto& one = *use.add_spans();
    one.set_begin(begin_ns);
    one.set_busy(span.busy_ns);
    one.set_in_service(span.in_service_ns);
  }
  return use;
}

}  // namespace ff::scheduler
