// One attempt on this node: a folder of the agent with attempt.json, and for each rank a folder of
// its shim and a log; and $FF_TASK_DIR. The whole state can be read again from these folders.
//
//   DIR/attempts/12.1/attempt.json    written last when the attempt is prepared
//   DIR/attempts/12.1/rank.0/         of the shim; with launch.json in it, it may have started
//   DIR/attempts/12.1/0.log, .1 …     output of the rank (shim/rank_log.h)
//   DIR/ended/12.1/                   after clean_up(): attempt.json and the logs
//   TASKS/12.1/                       $FF_TASK_DIR, owned by the user; `key` in it: FF_KEY_FILE
//
// All functions block, for seconds where they run other programs; none belongs on a loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/scheduler/attempt_record.h"
#include "ops/scheduler/port_reservation.h"
#include "ops/scheduler/rank_control.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/shim/control.h"
#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "training/task/agent_task_dir.h"

namespace ff::scheduler {

// What all attempts of one agent share; outlives them.
struct NodeContext {
  io::Disk& disk;
  Clock& clock;
  Rng& rng;
  std::string attempts, ended;    // folders
  std::string tasks;              // parent of the $FF_TASK_DIR folders
  std::vector<std::string> shim;  // command of the shim
  std::string cgroup, lease;      // see shim::LaunchSpec
  std::string boot;
  std::string zone;        // of this node
  uint32_t uid = 0;        // of the agent; 0 runs tasks of all users
  uint64_t log_bytes = 0;  // limit of the logs of one attempt
  LiveRanks& live_ranks;
  const std::atomic<int64_t>& lease_until_ns;  // steady; no rank starts later
};

class LocalAttempt {
 public:
  // Creates the folders and reserves the port. The scheduler gets the text of the error.
  static Result<std::unique_ptr<LocalAttempt>> prepare(const NodeContext& context,
                                                       const std::string& scheduler,
                                                       const wire::Order& order,
                                                       const std::set<uint32_t>& ports_taken);
  // Loads what an earlier agent prepared. Null: it was not fully prepared, or the machine rebooted
  // before any rank started; its folder was removed.
  static Result<std::unique_ptr<LocalAttempt>> load(const NodeContext& context, AttemptName name);

  const AttemptRecord& record() const { return record_; }
  // Ranks may have been started, so each must be ended.
  bool may_have_ranks() const { return may_have_ranks_ && launch_error_.empty(); }
  // Ranks were started, and all have exited.
  bool has_ended() const;

  // Reads the states of the ranks and the files of $FF_TASK_DIR.
  void refresh();
  wire::Held held() const;

  void run(const wire::Order& order);
  void request_stop(const wire::Order& order);
  void send_order(shim::ShimOrder order);
  void abandon(shim::ShimOrder how);
  // Removes all of an attempt whose ranks were never started.
  void discard();
  // Removes all of an ended attempt but its logs.
  Result<void> clean_up();

 private:
  struct Rank {
    std::string dir;
    shim::ShimState state = {};
    int64_t started_ns = 0;       // steady: started by this agent process; 0: not
    int64_t reap_started_ns = 0;  // steady: start of the last reap
    std::future<Result<shim::ExitRecord>> reaping =
        {};  // kill_lost_rank() of a rank whose shim is lost
  };

  LocalAttempt(const NodeContext& context, AttemptRecord record);
  // Sets the user of the record, and what this node knows of the user.
  static Result<void> set_user(const NodeContext& context, AttemptRecord& record);
  std::string folder() const;
  std::string task_dir() const;
  task::AgentTaskDir agent_task_dir() const;
  Result<void> create_dirs();
  Result<void> write_launches(const wire::Order& order);
  Result<std::optional<std::string>> write_key(const wire::Order& order);
  Result<void> write_launch(const wire::Order& order, uint32_t local,
                            std::optional<std::string> key);
  void start(Rank& rank);
  void refresh_rank(Rank& rank);
  void reap(Rank& rank);
  wire::Rank rank_report(uint32_t local) const;
  int64_t silent_ns(uint32_t local) const;
  void warn_once(std::string_view what, const Error& error);

  const NodeContext& context_;
  AttemptRecord record_;
  PortReservation port_;
  std::vector<Rank> ranks_;  // by local rank
  task::TaskDirSnapshot task_snapshot_;
  std::optional<uint64_t> saved_;  // highest reported step
  bool may_have_ranks_ = false;
  std::string launch_error_;  // why no rank was started
  std::string last_warning_;  // to suppress repetitions
};

}  // namespace ff::scheduler
