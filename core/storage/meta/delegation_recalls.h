// Recalls directory delegations (compare NFSv4.1, RFC 8881, chapter 10; capabilities of CephFS).
//
// A client holds a delegation of a directory: it alone may read and change the names in it, answers
// such calls by itself and sends its changes in batches (client/delegations.h). A delegation lasts
// until the client gives it back or its lease ends. It is stored: the inode of the directory names
// the lease, and the lease has a record (keys.h). So a server that restarts, or another one, finds
// all delegations as they are and needs no grace period; a batch whose reply was lost is repeated
// at any server and applied once. A lease is created once, too: a copy of the request that a slow
// server receives after the end of the lease would revive its delegations.
//
// A call of another client that needs a delegated directory fails with delegation_conflict(). The
// server then marks the directory in the record of the lease, wakes the client if it waits here
// (kRecalls), and repeats the call when the client has given the directory back. If the client does
// not do that within kRecallNs, the server lets it renew its lease no more. If the server has seen
// no renewal for kDelegationLeaseNs by its own clock, it ends the lease. By then the client has
// answered nothing for long (kDelegationHolderNs after its last renewal began); no clocks are
// compared.
//
// Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "storage/meta/namespace.h"
#include "storage/meta/records.h"

namespace ff::meta {

class DelegationRecalls {
 public:
  // How long a client that renews its lease may keep a recalled directory: it may have to store
  // bytes first, on a chain that goes on without a node that has failed.
  static constexpr int64_t kRecallNs = 30 * kSecond;
  // How long one call waits; the client repeats it.
  static constexpr int64_t kCallWaitNs = 5 * kSecond;
  // A directory that was recalled is not delegated again for this long.
  static constexpr int64_t kContendedNs = kSecond;

  // All outlive it.
  DelegationRecalls(Namespace& name_space, Loop& loop, Metrics& metrics);

  // Returns when the directory is free. Errc::busy: not yet, repeat the call.
  Task<Result<void>> recall(DelegationConflict conflict);
  // The directories that the holder of the lease is to give back; waits for the first one, but not
  // longer than kRecallsWaitNs.
  Task<Result<std::vector<InodeId>>> wait(uint64_t lease);
  // A batch or renewal of this lease arrived: recalls look again.
  void on_progress(uint64_t lease);
  // Two clients have just used it.
  bool contended(InodeId dir);

 private:
  // The clients that wait, and the calls that wait for them.
  struct Lease {
    explicit Lease(Loop& loop) : recalled_event(loop), progress(loop) {}
    std::set<InodeId> recalled = {};
    Event recalled_event;
    Event progress;
    size_t users = 0;
    // The last observed beat, and since when it has not changed (steady clock).
    uint64_t beat = 0;
    int64_t since_ns = 0;
  };
  class Use;
  Task<Result<void>> press(DelegationConflict conflict, Namespace::HolderState state, Lease& lease,
                           int64_t asked_ns);
  void drop_old();

  Namespace& namespace_;
  Loop& loop_;
  Counter& recalls_;
  Counter& ended_;
  std::map<uint64_t, std::unique_ptr<Lease>> leases_;
  std::map<InodeId, int64_t> contended_;  // when it was recalled last (steady clock)
  // Since when this server has seen a directory being recalled (steady clock). A call may end
  // before the directory is given back, perhaps to another server, and then delegated and recalled
  // again: that recall has another number.
  struct Asked {
    uint64_t number = 0;
    int64_t since_ns = 0;
  };
  std::map<std::pair<uint64_t, InodeId>, Asked> asked_;  // by lease and directory
};

}  // namespace ff::meta
