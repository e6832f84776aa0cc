// Metrics of a cluster for Prometheus. The primary sets them every few seconds; a manager that is
// not the primary exports 0 for all.
#pragma once

#include <cstdint>

#include "platform/base/metrics.h"
#include "storage/cluster/manager.h"

namespace ff::cluster {

class ManagerMetrics {
 public:
  // `metrics` must outlive it.
  explicit ManagerMetrics(Metrics& metrics) : metrics_(metrics) { clear(); }

  void update(const Manager& manager, int64_t now_ns);
  // This manager is not the primary.
  void clear();

 private:
  struct Values;
  void set(const Values& values);

  Metrics& metrics_;
};

}  // namespace ff::cluster
