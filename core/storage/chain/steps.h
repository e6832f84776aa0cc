// Steps of the store that are under way for a target, by the chain's version they began under. What
// a target does anew under a version - to serve, to be copied to, to copy - begins once those of
// earlier versions have ended: a chunk that was looked at before its step has ended would pass for
// what it is not.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::chain {

class Steps {
 public:
  explicit Steps(Loop& loop) : ended_(loop) {}

  // A step, until it goes. Must not outlive the steps.
  class [[nodiscard]] Hold {
   public:
    Hold(Steps& of, uint64_t version) : of_(of), version_(version) { of_.running_[version_]++; }
    ~Hold() {
      const auto at = of_.running_.find(version_);
      if (--at->second == 0) of_.running_.erase(at);
      of_.ended_.set();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Steps& of_;
    const uint64_t version_;
  };

  // Until none is left that began before this version. Error: cancelled.
  Task<Result<void>> wait_before(uint64_t version) {
    while (!running_.empty() && running_.begin()->first < version) {
      ended_.reset();
      FF_CO_TRY(co_await ended_.wait());
    }
    co_return Result<void>();
  }

 private:
  std::map<uint64_t, size_t> running_;  // how many, by version
  Event ended_;
};

}  // namespace ff::chain
