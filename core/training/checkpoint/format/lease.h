// A lease: the file tmp/ID.lease. While it exists and is fresh, its owner uses chunks that no index
// names yet, and a pruner must not delete them.
//
// A saver acquires its lease before it looks up its first chunk, and renews it (its modification
// time, by the clock of the store's file system) while it works; so does a reader of a checkpoint
// that may be forgotten meanwhile. A pruner deletes nothing while a lease exists that it saw after
// it had moved chunks to the trash. Before its last pass over the indexes it removes overdue leases
// with their folders tmp/ID/. A saver publishes its index by a link or rename out of that folder:
// so either the pruner sees the index, or the folder is gone and the save fails. Each side writes
// before it reads, so at least one of them sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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
  bool alive = false;    // renewed within kLeaseTimeoutNs
  int64_t ahead_ns = 0;  // by how much its time is in the future of the store's clock
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
  static Result<Lease> acquire(Context& context, const Store& store, const Purpose& purpose);
  // For actions that only read: nothing when this user may not write the store. A concurrent prune
  // may then make the action fail. It writes nowhere but below the store's directory, whatever
  // symbolic links a hostile store has (Disk::beneath).
  static std::optional<Lease> try_acquire(Context& context, const Store& store,
                                          const Purpose& purpose);
  // Releases the lease and removes its folder.
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;

  // Renews when kLeaseRenewNs have passed; cheap otherwise; from any thread.
  Result<void> renew_if_due();
  // Whether the lease and its folder still exist, that is, no pruner has considered it dead.
  Result<bool> is_held() const;

  const std::string& id() const { return id_; }
  // tmp/ID
  std::string folder() const { return base_; }

 private:
  Lease(Context& context, io::Disk& disk, std::string base, std::string id);
  static Result<Lease> make(Context& context, io::Disk& disk, const Store& store,
                            const Purpose& purpose);

  Context* context_;                  // null: moved from
  std::unique_ptr<io::Disk> inside_;  // of try_acquire()
  io::Disk* disk_;
  std::string base_;  // tmp/ID
  std::string id_;
  std::atomic<int64_t> renewed_ns_;
};

// All leases of a store, alive or overdue, by the clock of its file system.
Result<std::vector<LeaseInfo>> list_leases(Context& context, const Store& store);

// The current time by the clock of the store's file system, in nanoseconds since the Unix epoch.
Result<int64_t> store_now_ns(Context& context, const Store& store);

}  // namespace ff::checkpoint
