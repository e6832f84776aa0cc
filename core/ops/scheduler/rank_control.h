// Orders to one rank that arrive whatever happens: where the disk takes no file they go as signals,
// and where no shim has begun yet, none will.
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

// `dir`: the shim's folder. Each of these may be done twice.
void order_rank(io::Disk& disk, const std::string& dir, shim::Order order);

// Writes `exit` for a rank whose shim has never begun, so that none begins any more. Nothing, where
// a shim holds the folder or has held it: that one reads its orders. False: the disk refuses.
struct Unstarted {
  std::string why;
  bool given_up = false;  // shim::Exit
};
bool end_unstarted(io::Disk& disk, Clock& clock, const std::string& dir, const Unstarted& how);

// How it ends from now on is the node's doing; nothing of it starts any more. It may not be gone
// yet.
void give_up_rank(io::Disk& disk, Clock& clock, const std::string& dir, shim::Order how);

// Shims' folders of ranks that may be running. From any thread: those are killed when the lease is
// over, whatever else the agent may be waiting for.
class LivingRanks {
 public:
  void add(const std::string& dir);
  void remove(const std::string& dir);
  std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> dirs_;
};

}  // namespace ff::scheduler
