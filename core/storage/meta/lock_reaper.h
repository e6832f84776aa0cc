// Releases the advisory locks of dead clients. A live owner renews its lock every kLockRenewNs
// (service.h), which increments the record. LockReaper removes a record that has not changed for
// kLockExpiryNs of its own clock; no clocks are compared. An owner that was too slow treats its
// lock as lost (client/file_system.h). Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/task.h"
#include "platform/kv/engine.h"

namespace ff::meta {

class LockReaper {
 public:
  // All outlive it.
  LockReaper(kv::Engine& engine, Loop& loop, Metrics& metrics);

  // Checks all locks. Call it every few seconds.
  Task<Result<void>> reap();
  // Forgets earlier observations.
  void reset() { observed_.clear(); }

 private:
  using Records = std::map<std::string, std::string>;
  Task<Result<Records>> records();
  Task<Result<void>> release(std::string key, std::string record);

  // The last seen record, and since when it has not changed (steady clock).
  struct ObservedLock {
    std::string record;
    int64_t since_ns = 0;
  };

  kv::Engine& engine_;
  Loop& loop_;
  Counter& lapsed_;
  std::map<std::string, ObservedLock> observed_;  // by key
};

}  // namespace ff::meta
