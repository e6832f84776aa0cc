// rank_control.cc: files of orders, else signals.
#include "ops/scheduler/rank_control.h"

#include <csignal>

#include "ops/shim/process_table.h"
#include "platform/base/log.h"
#include "platform/io/files.h"

namespace ff::scheduler {

void order_rank(io::Disk& disk, const std::string& dir, shim::Order order) {
  const auto given = shim::give_order(disk, dir, order);
  if (given) return;
  log_warning("an order to a rank cannot be written, so it goes as a signal",
              {{"dir", dir}, {"order", shim::order_file(order)}, {"cause", given.error().message}});
  const auto state = shim::read_state(disk, dir);
  if (!state || state->phase != shim::Phase::running || !state->running) return;
  if (order == shim::Order::terminate) (void)shim::send_signal(disk, state->running->shim, SIGTERM);
  // When the first process has ended, the shim kills the others by itself.
  if (order == shim::Order::kill) (void)shim::send_signal(disk, state->running->rank, SIGKILL);
}

bool end_unstarted(io::Disk& disk, Clock& clock, const std::string& dir, const Unstarted& how) {
  const auto lock = io::lock_file(disk, io::join(dir, shim::kLockFile));
  if (!lock) return false;
  if (*lock == nullptr) return true;
  for (const char* const name : {shim::kRunningFile, shim::kExitFile}) {
    const auto there = io::exists(disk, io::join(dir, name));
    if (!there) return false;
    if (*there) return true;
  }
  const int64_t now_ns = clock.wall_ns();
  const shim::Exit exit{.ending = shim::Ending::not_started,
                        .why = how.why,
                        .given_up = how.given_up,
                        .ended_ns = now_ns,
                        .gone_ns = now_ns};
  return io::replace_file(disk, io::join(dir, shim::kExitFile), to_json(exit), "new").ok();
}

void give_up_rank(io::Disk& disk, Clock& clock, const std::string& dir, shim::Order how) {
  order_rank(disk, dir, shim::Order::give_up);
  order_rank(disk, dir, how);
  const auto state = shim::read_state(disk, dir);
  if (state && state->phase == shim::Phase::not_started) {
    (void)end_unstarted(disk, clock, dir,
                        {.why = "its node does not start it any more", .given_up = true});
  }
}

void LivingRanks::add(const std::string& dir) {
  const std::lock_guard lock(mutex_);
  dirs_.insert(dir);
}

void LivingRanks::remove(const std::string& dir) {
  const std::lock_guard lock(mutex_);
  dirs_.erase(dir);
}

std::vector<std::string> LivingRanks::all() const {
  const std::lock_guard lock(mutex_);
  return {dirs_.begin(), dirs_.end()};
}

}  // namespace ff::scheduler
