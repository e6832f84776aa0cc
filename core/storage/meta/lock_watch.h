// Takes locks of files from holders that have died: whoever holds one asks for it again every
// kLockRenewNs (service.h), which counts its record up. A record that has not changed for
// kLockLapseNs, as measured by the one who looks, is removed. No clocks are compared, and a holder
// who finds that he was that slow no longer takes the lock for his (client/file_system.h). Owned by
// one loop.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/task.h"
#include "platform/kv/engine.h"

namespace ff::meta {

class LockWatch {
 public:
  // All outlive it.
  LockWatch(kv::Engine& engine, Loop& loop, Metrics& metrics);

  // One look at all locks; to be called every few seconds.
  Task<Result<void>> look();
  // What was seen before does not count any more.
  void forget() { seen_.clear(); }

 private:
  using Records = std::map<std::string, std::string>;
  Task<Result<Records>> records();
  Task<Result<void>> take_away(std::string key, std::string record);

  // What a record was when it was last looked at, and since when (steady).
  struct Seen {
    std::string record;
    int64_t since_ns = 0;
  };

  kv::Engine& engine_;
  Loop& loop_;
  Counter& lapsed_;
  std::map<std::string, Seen> seen_;  // by key
};

}  // namespace ff::meta
