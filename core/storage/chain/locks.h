// Locks of chunks: one update of a chunk at a time at one target, in the order they came. Reads
// take none.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "storage/chunk/chunk.h"

namespace ff::chain {

class ChunkLocks {
  struct Lock {
    explicit Lock(Loop& loop) : units(loop, 1) {}
    Semaphore units;
    size_t users = 0;  // holders, and those who wait
  };
  using Locks = std::map<chunk::ChunkId, Lock>;
  // Keeps the lock's entry while somebody uses it.
  class Use {
   public:
    Use(Locks& locks, Locks::iterator at) : locks_(&locks), at_(at) { at_->second.users++; }
    Use(Use&& other) noexcept : locks_(std::exchange(other.locks_, nullptr)), at_(other.at_) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(locks_, other.locks_);
      std::swap(at_, other.at_);
      return *this;
    }
    ~Use() {
      if (locks_ != nullptr && --at_->second.users == 0) locks_->erase(at_);
    }
    Semaphore& units() const { return at_->second.units; }

   private:
    Locks* locks_;
    Locks::iterator at_;
  };

 public:
  explicit ChunkLocks(Loop& loop) : loop_(loop) {}

  // Held until it goes. Must not outlive the locks.
  class [[nodiscard]] Hold {
   public:
    Hold(Use use, Semaphore::Hold hold) : use_(std::move(use)), hold_(std::move(hold)) {}
    Hold(Hold&&) noexcept = default;
    Hold& operator=(Hold&& other) noexcept {
      std::swap(use_, other.use_);
      std::swap(hold_, other.hold_);
      return *this;
    }

   private:
    Use use_;  // goes after the units have been given back
    Semaphore::Hold hold_;
  };

  Task<Result<Hold>> take(chunk::ChunkId id) {
    Use use(locks_, locks_.try_emplace(id, loop_).first);
    auto taking = use.units().take(1);
    FF_CO_TRY(auto units, co_await std::move(taking));
    co_return Hold(std::move(use), std::move(units));
  }

 private:
  Loop& loop_;
  Locks locks_;
};

}  // namespace ff::chain
