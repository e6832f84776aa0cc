// Schedules grants: limits how many servers send bulk data to this client at once. Many servers
// that answer one client at the same time overrun its link (incast). So a server sends a
// request_to_send, and the client grants a few at a time, the oldest call first (request-to-send
// control: Fire-Flyer paper, section VI-B; 3FS). Shared by all channels of a loop.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

namespace ff::rpc {

// Bulk data up to this size needs no grant.
constexpr uint64_t kUngrantedMax = uint64_t{64} << 10;

class GrantScheduler {
 public:
  // A call that waits for a grant.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // The call has a grant. Must not run tasks.
    virtual void granted() = 0;
  };

  static constexpr size_t kDefaultMax = 8;
  // 0: no limit.
  explicit GrantScheduler(size_t max = kDefaultMax) : free_(max), limited_(max > 0) {}

  // Takes a grant if one is free and no call waits.
  bool try_acquire();
  // Queues the waiter; calls granted() when its turn comes, possibly at once. `started_ns`: start
  // of the call.
  void wait(int64_t started_ns, Waiter& waiter);
  // Removes the waiter from the queue.
  void cancel(Waiter& waiter);
  // Returns the grant of a call whose bulk data has arrived, or will never arrive.
  void release();

 private:
  void grant_next();

  size_t free_;
  const bool limited_;
  uint64_t arrivals_ = 0;
  struct QueueEntry {
    int64_t started_ns = 0;
    uint64_t arrival = 0;
    Waiter* waiter = nullptr;
    auto operator<=>(const QueueEntry& other) const {
      if (const auto order = started_ns <=> other.started_ns; order != 0) return order;
      return arrival <=> other.arrival;
    }
    bool operator==(const QueueEntry& other) const { return arrival == other.arrival; }
  };
  std::set<QueueEntry> waiting_;
};

}  // namespace ff::rpc
