// Per-chunk locks of a target: one update of a chunk at a time, in order of arrival. Reads do not
// lock.
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
  struct Entry {
    explicit Entry(Loop& loop) : units(loop, 1) {}
    Semaphore units;
    size_t users = 0;  // holder and waiters
  };
  using Locks = std::map<chunk::ChunkId, Entry>;
  // Keeps the map entry while the lock is held or awaited.
  class EntryRef {
   public:
    EntryRef(Locks& locks, Locks::iterator at) : locks_(&locks), at_(at) { at_->second.users++; }
    EntryRef(EntryRef&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), at_(other.at_) {}
    EntryRef& operator=(EntryRef&& other) noexcept {
      std::swap(locks_, other.locks_);
      std::swap(at_, other.at_);
      return *this;
    }
    ~EntryRef() {
      if (locks_ != nullptr && --at_->second.users == 0) locks_->erase(at_);
    }
    Semaphore& units() const { return at_->second.units; }

   private:
    Locks* locks_;
    Locks::iterator at_;
  };

 public:
  explicit ChunkLocks(Loop& loop) : loop_(loop) {}

  // Unlocks in the destructor. The ChunkLocks must outlive it.
  class [[nodiscard]] Lock {
   public:
    Lock(EntryRef entry, Semaphore::Permit permit)
        : entry_(std::move(entry)), permit_(std::move(permit)) {}
    Lock(Lock&&) noexcept = default;
    Lock& operator=(Lock&& other) noexcept {
      std::swap(entry_, other.entry_);
      std::swap(permit_, other.permit_);
      return *this;
    }

   private:
    EntryRef entry_;  // destroyed after the permit
    Semaphore::Permit permit_;
  };

  Task<Result<Lock>> lock(chunk::ChunkId id) {
    EntryRef entry(locks_, locks_.try_emplace(id, loop_).first);
    FF_CO_TRY(auto units, co_await entry.units().acquire(1));
    co_return Lock(std::move(entry), std::move(units));
  }

 private:
  Loop& loop_;
  Locks locks_;
};

}  // namespace ff::chain
