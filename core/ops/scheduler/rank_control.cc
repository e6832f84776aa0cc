// rank_control.cc: order files, or else signals.
#include "ops/scheduler/rank_control.h"

#include <csignal>

#include "ops/shim/process_table.h"
#include "platform/base/log.h"
#include "platform/io/files.h"

namespace ff::scheduler {

void send_rank_order(io::Disk& disk, const std::string& dir, shim::ShimOrder order) {
  const auto given = shim::send_order(disk, dir, order);
  if (given) return;
  log_warning("cannot write an order to a rank, so it is sent as a signal",
              {{"dir", dir}, {"order", shim::order_file(order)}, {"cause", given.error().message}});
  const auto state = shim::read_state(disk, dir);
  if (!state || state->phase != shim::ShimPhase::running || !state->running) return;
  if (order == shim::ShimOrder::terminate)
    (void)shim::send_signal(disk, state->running->shim, SIGTERM);
  // After the exit of the first process the shim kills the others.
  if (order == shim::ShimOrder::kill) (void)shim::send_signal(disk, state->running->rank, SIGKILL);
}

bool cancel_unstarted(io::Disk& disk, Clock& clock, const std::string& dir,
                      const CancelReason& how) {
  const auto lock = io::lock_file(disk, io::join(dir, shim::kLockFile));
  if (!lock) return false;
  if (*lock == nullptr) return true;
  for (const char* const name : {shim::kRunningFile, shim::kExitFile}) {
    const auto there = io::exists(disk, io::join(dir, name));
    if (!there) return false;
    if (*there) return true;
  }
  const int64_t now_ns = clock.wall_ns();
  const shim::ExitRecord exit{.kind = shim::ExitKind::not_started,
                              .why = how.why,
                              .abandoned = how.abandoned,
                              .ended_ns = now_ns,
                              .gone_ns = now_ns};
  return io::replace_file(disk, io::join(dir, shim::kExitFile), to_json(exit), "new").ok();
}

void abandon_rank(io::Disk& disk, Clock& clock, const std::string& dir, shim::ShimOrder how) {
  send_rank_order(disk, dir, shim::ShimOrder::abandon);
  send_rank_order(disk, dir, how);
  const auto state = shim::read_state(disk, dir);
  if (state && state->phase == shim::ShimPhase::not_started) {
    (void)cancel_unstarted(disk, clock, dir,
                           {.why = "its node no longer starts it", .abandoned = true});
  }
}

void LiveRanks::add(const std::string& dir) {
  const std::lock_guard lock(mutex_);
  dirs_.insert(dir);
}

void LiveRanks::remove(const std::string& dir) {
  const std::lock_guard lock(mutex_);
  dirs_.erase(dir);
}

std::vector<std::string> LiveRanks::all() const {
  const std::lock_guard lock(mutex_);
  return {dirs_.begin(), dirs_.end()};
}

}  // namespace ff::scheduler
