// Tracks running store operations of a target by the chain version under which they started. Before
// a target takes a new role under a version (serve, sync, copy) it waits for the operations of
// earlier versions: otherwise it could act on the state of a chunk that is still being changed.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::chain {

class OperationTracker {
 public:
  explicit OperationTracker(Loop& loop) : ended_(loop) {}

  // Registers a running operation until its destruction. The tracker must outlive it.
  class [[nodiscard]] Operation {
   public:
    Operation(OperationTracker& tracker, uint64_t version) : tracker_(tracker), version_(version) {
      tracker_.running_[version_]++;
    }
    ~Operation() {
      const auto at = tracker_.running_.find(version_);
      if (--at->second == 0) tracker_.running_.erase(at);
      tracker_.ended_.set();
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    OperationTracker& tracker_;
    const uint64_t version_;
  };

  // Waits until no operation runs that started before this version. Error: cancelled.
  Task<Result<void>> wait_before(uint64_t version) {
    while (!running_.empty() && running_.begin()->first < version) {
      ended_.reset();
      FF_CO_TRY(co_await ended_.wait());
    }
    co_return Result<void>();
  }

 private:
  std::map<uint64_t, size_t> running_;  // number of operations by version
  Event ended_;
};

}  // namespace ff::chain
