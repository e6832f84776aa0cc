// Shares of a server: how much of it one restricted entity (auth/entity.h) may hold at a time, so
// that a hostile or hanging client costs others little. Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "platform/auth/entity.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"

namespace ff::rpc {

// Shares of one resource: units (calls, bytes) by entity.
class EntityShares {
 public:
  // Both outlive it. `what`: of the metric "calls".
  EntityShares(Loop& loop, Metrics& metrics, std::string what)
      : loop_(loop), metrics_(metrics), what_(std::move(what)) {}

  // Waits until the entity holds at most its share with these units besides. `share`: units of the
  // entity, the same in every call; more units than that count as the whole share.
  Task<Result<Semaphore::Permit>> acquire(std::string entity, size_t share, size_t units) {
    auto& semaphore = shares_[entity];
    if (semaphore == nullptr) semaphore = std::make_unique<Semaphore>(loop_, share);
    const size_t taken = std::min(units, share);
    if (auto permit = semaphore->try_acquire(taken)) co_return std::move(*permit);
    held_back_++;
    metrics_
        .counter("ff_held_back_total", "Waits of entities that held their whole share",
                 {{"what", what_}, {"entity", entity}})
        .add();
    last_held_back_ = std::move(entity);
    last_ns_ = loop_.now_ns();
    co_return co_await semaphore->acquire(taken);
  }
  // The entity that had to wait last, if that was within this time; else empty.
  std::string held_back(int64_t within_ns) const {
    return held_back_ > 0 && loop_.now_ns() - last_ns_ < within_ns ? last_held_back_
                                                                   : std::string();
  }

 private:
  Loop& loop_;
  Metrics& metrics_;
  const std::string what_;
  std::map<std::string, std::unique_ptr<Semaphore>> shares_;  // kept: entities are few
  std::string last_held_back_;
  int64_t last_ns_ = 0;
  uint64_t held_back_ = 0;
};

}  // namespace ff::rpc
