// A lease: the file tmp/ID.lease that tells a pruner "I am using chunks that no index names yet".
//
// A saver takes its lease before its first dedup hit and renews it (its modification time, by the
// store's own clock) while it works; so does a reader of a checkpoint that may be forgotten
// meanwhile. A pruner deletes nothing while a lease is there that it saw after it had moved chunks
// to the trash. Before it reads the indexes for the last time it takes overdue leases away, with
// their folders tmp/ID/. A saver publishes its index by linking or renaming it out of that folder:
// so either the pruner sees the index, or there is nothing left to publish and the save fails.
// Each side writes before it reads, so one of them always sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// Overdue after this long without renewal: far above any stall of a healthy machine.
constexpr int64_t kLeaseTimeoutNs = 600 * kSecond;
constexpr int64_t kLeaseRenewNs = 20 * kSecond;
constexpr std::string_view kLeaseSuffix = ".lease";

struct LeaseInfo {
  std::string id;
  std::string action;  // "save", "load", ...
  std::string run;
  uint64_t step = 0;
  std::string attempt;
  bool alive = false;  // renewed within kLeaseTimeoutNs
};

class Lease {
 public:
  struct Purpose {
    std::string action;
    StepName name;
    std::string attempt;
  };
  // Creates the lease and its folder tmp/ID/ for unfinished files. Errc::refused on a store this
  // user may not write.
  static Result<Lease> take(Context& context, const Store& store, const Purpose& purpose);
  // For an action that only reads: nothing on a store this user may not write. A prune at the same
  // time could then at worst end the action with an error.
  static std::optional<Lease> try_take(Context& context, const Store& store,
                                       const Purpose& purpose);
  // Gives the lease back and removes what is left of its folder.
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;

  // Renews when kLeaseRenewNs have passed; cheap otherwise; from any thread.
  Result<void> renew_if_due();
  // Whether the lease and its folder are still there, that is, no pruner has taken it for dead.
  Result<bool> held() const;

  const std::string& id() const { return id_; }
  // tmp/ID
  std::string folder() const { return base_; }

 private:
  Lease(Context& context, std::string base, std::string id);

  Context* context_;
  std::string base_;  // tmp/ID
  std::string id_;
  std::atomic<int64_t> renewed_ns_;
};

// All leases of a store, alive or overdue, by the clock of its file system.
Result<std::vector<LeaseInfo>> list_leases(Context& context, const Store& store);

// The file system's idea of now, in nanoseconds since the Unix epoch.
Result<int64_t> store_now_ns(Context& context, const Store& store);

}  // namespace ff::checkpoint
