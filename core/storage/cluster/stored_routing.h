// The routing as the KV store has it, for services beside the managers on the same store: it is
// there on every one of them, whoever is primary. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "platform/base/wait.h"
#include "storage/cluster/store.h"

namespace ff::cluster {

class StoredRouting {
 public:
  // `changed` is called after each change. Both outlive it.
  StoredRouting(kv::Engine& engine, Loop& loop, std::function<void()> changed);

  // Version 0 until it has been read, or while there is no cluster.
  const Routing& routing() const { return routing_; }
  const Fill& fill() const { return fill_; }
  // The steady time at which the last look that succeeded began.
  int64_t looked_ns() const { return looked_ns_; }
  // Looks whether there is a newer one, now and then, and when refresh() says so. Until cancelled.
  Task<void> run();
  void refresh() { asked_.set(); }

 private:
  Task<Result<void>> look();
  Task<Result<bool>> look_at_fill();

  Store store_;
  Loop& loop_;
  const std::function<void()> changed_;
  Routing routing_;
  Fill fill_;
  int64_t fill_ns_ = INT64_MIN;  // when it was read
  int64_t looked_ns_ = INT64_MIN;
  Event asked_;
};

}  // namespace ff::cluster
