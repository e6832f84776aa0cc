// The ranks of one host, as one of them sees the others: joining, the operation table, and memory
// that they share. Thread-safe after join().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "platform/net/shared_region.h"
#include "training/collective/host_state.h"
#include "training/collective/operation_table.h"
#include "training/collective/rank_sockets.h"

namespace ff::collective {

// Called now and then while ranks join; its error ends the joining.
using JoinCheck = std::function<Result<void>()>;

class HostGroup {
 public:
  // Waits until all ranks of the host have joined. Errc::deadline names the missing ranks,
  // Errc::refused means a process of another user, Errc::usage a rank that joined twice or ranks
  // that disagree on their number.
  static Result<std::unique_ptr<HostGroup>> join(HostRank self, const StopToken& stop,
                                                 int64_t within_ns, const JoinCheck& check = {});
  ~HostGroup();

  const HostRank& self() const { return state_.self; }
  OperationTable& operations() { return *state_.operations; }
  // "rank 3 (process 4711)", with the global rank.
  std::string name_of(uint32_t rank) const { return state_.name_of(rank); }
  int32_t pid_of(uint32_t rank) const { return state_.pids.at(rank); }
  bool is_gone(uint32_t rank) const { return state_.is_gone(rank); }
  bool has_ended(uint32_t rank) const { return state_.has_ended(rank); }
  // This rank posts no more operations.
  void leave();
  // Wakes the thread of rank 0 that exchanges data with other hosts; it polls wake_fd().
  void wake_leader() const { state_.wake_leader(); }
  int wake_fd() const { return state_.wake_fd.get(); }

  // Zeroed memory that all ranks of the host map. They learn of it before they see any operation
  // that this rank posts later.
  Result<std::shared_ptr<const net::SharedRegion>> make_region(uint64_t bytes);
  // No rank may use it any more.
  void remove_region(const std::shared_ptr<const net::SharedRegion>& region);
  // Nothing when no region of this rank contains all of `memory`.
  std::optional<SharedAddress> address_of(ByteView memory) const;
  // Memory of a rank (or of this one) in this process. Waits until that rank has shared it:
  // Errc::unreachable when a rank fails meanwhile, Errc::deadline after operation_ns (which fails
  // the job), Errc::corrupt beyond the end of the region.
  Result<std::byte*> resolve(uint32_t rank, const SharedAddress& address, uint64_t bytes) {
    return state_.resolve(rank, address, bytes);
  }

 private:
  HostGroup(HostRank self, Clock& clock) : state_(std::move(self), clock) {}

  net::SharedRegionSet own_regions_;
  HostState state_;
  std::unique_ptr<RankSockets> sockets_;
};

}  // namespace ff::collective
