// Shares of a storage node's memory for data in flight: how much of it one restricted entity
// (auth/entity.h) may hold, so that a client that hangs costs others little. Owned by one loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "platform/base/metrics.h"
#include "platform/base/wait.h"

namespace ff::chain {

class MemoryShares {
 public:
  // Both outlive it.
  MemoryShares(Loop& loop, Metrics& metrics) : loop_(loop), metrics_(metrics) {}

  // Waits until the entity holds at most its share with these bytes besides. `share`: bytes of the
  // entity, the same in every call; more bytes than that count as the whole share.
  Task<Result<Semaphore::Permit>> acquire(std::string entity, size_t share, size_t bytes) {
    auto& semaphore = shares_[entity];
    if (semaphore == nullptr) semaphore = std::make_unique<Semaphore>(loop_, share);
    const size_t taken = std::min(bytes, share);
    if (auto permit = semaphore->try_acquire(taken)) co_return std::move(*permit);
    metrics_
        .counter("ff_held_back_total", "Waits of entities that held their whole share",
                 {{"what", "memory"}, {"entity", entity}})
        .add();
    last_held_back_ = std::move(entity);
    last_ns_ = loop_.now_ns();
    co_return co_await semaphore->acquire(taken);
  }
  // The entity that had to wait last, if that was within this time; else empty.
  std::string held_back(int64_t within_ns) const {
    return loop_.now_ns() - last_ns_ < within_ns ? last_held_back_ : std::string();
  }

 private:
  Loop& loop_;
  Metrics& metrics_;
  std::map<std::string, std::unique_ptr<Semaphore>> shares_;  // kept: entities are few
  std::string last_held_back_;
  int64_t last_ns_ = 0;
};

}  // namespace ff::chain
