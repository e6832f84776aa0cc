// Orders to one rank that arrive in any case: they go as signals where the disk takes no file;
// where no shim has started yet, none will.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ops/shim/control.h"
#include "platform/base/clock.h"
#include "platform/io/disk.h"

namespace ff::scheduler {

// `dir`: the folder of the shim. All functions are idempotent.
void send_rank_order(io::Disk& disk, const std::string& dir, shim::ShimOrder order);

// Writes `exit` for a rank whose shim has never started, so that none starts later. No effect where
// a shim locks or has locked the folder: it reads its orders. False: the disk refuses.
struct CancelReason {
  std::string why;
  bool abandoned = false;  // shim::ExitRecord
};
bool cancel_unstarted(io::Disk& disk, Clock& clock, const std::string& dir,
                      const CancelReason& how);

// From now on its end is attributed to the node, and nothing of it starts. It may still be running
// when this returns.
void abandon_rank(io::Disk& disk, Clock& clock, const std::string& dir, shim::ShimOrder how);

// Folders of the shims whose ranks may be running. From any thread: these ranks are killed when the
// lease expires, whatever else the agent waits for.
class LiveRanks {
 public:
  void add(const std::string& dir);
  void remove(const std::string& dir);
  std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> dirs_;
};

}  // namespace ff::scheduler
