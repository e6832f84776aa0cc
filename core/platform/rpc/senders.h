// Who may send bulk to this machine at once. Many servers that answer one client at the same time
// overrun its link (incast); so a server asks, and the client grants a few at a time, in the order
// of age of their calls (request-to-send; paper VI-B, 3FS). One for all channels of a loop.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

namespace ff::rpc {

// Answers up to this size need no grant (wire.md).
constexpr uint64_t kUngrantedMax = uint64_t{64} << 10;

class Senders {
 public:
  // A call that may be sent bulk.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Its turn has come. May not run tasks.
    virtual void granted() = 0;
  };

  static constexpr size_t kDefaultMax = 8;
  // 0: no limit.
  explicit Senders(size_t max = kDefaultMax) : free_(max), limited_(max > 0) {}

  // A slot at once, when one is free and nobody waits.
  bool try_take();
  // granted() will be called, perhaps at once. started_ns: of the call.
  void wait(int64_t started_ns, Waiter& waiter);
  // It no longer wants to.
  void leave(Waiter& waiter);
  // The bulk of a call that had a slot has come, or never will.
  void give();

 private:
  void serve();

  size_t free_;
  const bool limited_;
  uint64_t arrivals_ = 0;
  struct Place {
    int64_t started_ns = 0;
    uint64_t arrival = 0;
    Waiter* waiter = nullptr;
    auto operator<=>(const Place& other) const {
      if (const auto order = started_ns <=> other.started_ns; order != 0) return order;
      return arrival <=> other.arrival;
    }
    bool operator==(const Place& other) const { return arrival == other.arrival; }
  };
  std::set<Place> waiting_;
};

}  // namespace ff::rpc
