// What one node has of an attempt: a folder of the agent's with attempt.json, a shim's folder and a
// log for each rank, and $FF_TASK_DIR. All that is known of it can be read from there again.
//
//   DIR/attempts/12.1/attempt.json    written last of all that is made ready
//   DIR/attempts/12.1/rank.0/         of the shim; once launch.json is there, it may have started
//   DIR/attempts/12.1/0.log, .1 …     what the rank prints (shim/rank_log.h)
//   DIR/ended/12.1/                   after `forget`: attempt.json and the logs
//   TASKS/12.1/                       $FF_TASK_DIR, the user's; `key` in it: FF_KEY_FILE
//
// Nothing here belongs to a loop: all of it blocks, for seconds where other programs are asked.
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
#include "ops/scheduler/port_hold.h"
#include "ops/scheduler/rank_control.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/shim/control.h"
#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "training/task/agent_side.h"

namespace ff::scheduler {

// Of all attempts of one agent; outlives them.
struct NodePlace {
  io::Disk& disk;
  Clock& clock;
  Rng& rng;
  std::string attempts, ended;    // folders
  std::string tasks;              // of $FF_TASK_DIR
  std::vector<std::string> shim;  // the program that a shim is, and its words
  std::string cgroup, lease;      // shim::Launch
  std::optional<auth::Key> key;   // the cluster's
  std::string boot;
  uint32_t uid = 0;  // the agent's own; 0 runs tasks of all users
  LivingRanks& living;
  const std::atomic<int64_t>& lease_until_ns;  // steady; nothing starts after it
};

class LocalAttempt {
 public:
  // Makes ready. The error's text is what the scheduler is told.
  static Result<std::unique_ptr<LocalAttempt>> prepare(const NodePlace& place,
                                                       const std::string& scheduler,
                                                       const wire::Order& order,
                                                       const std::set<uint32_t>& ports_taken);
  // What an agent before this one had made. Null: it was not ready, or is of no use after another
  // boot; its folder is gone.
  static Result<std::unique_ptr<LocalAttempt>> load(const NodePlace& place, AttemptName name);

  const AttemptRecord& record() const { return record_; }
  // Ranks may have been started, so it has to be ended rank by rank.
  bool has_begun() const { return begun_ && failed_.empty(); }
  // Nothing of it is left, and it had begun.
  bool has_ended() const;

  // How its ranks are, and what the task has said.
  void look();
  wire::Held held() const;

  void run(const wire::Order& order);
  void ask(const wire::Order& order);
  void end(shim::Order order);
  void give_up(shim::Order how);
  // One that has not begun: all of it.
  void remove();
  // One that has ended: all but the logs.
  Result<void> forget();

 private:
  struct Rank {
    std::string dir;
    shim::State state = {};
    int64_t started_ns = 0;                       // steady: by this process; 0: not
    int64_t killed_ns = 0;                        // steady: when its burial was last begun
    std::future<Result<shim::Exit>> burial = {};  // of one whose shim is lost
  };

  LocalAttempt(const NodePlace& place, AttemptRecord record);
  static Result<std::optional<shim::User>> user_of(const NodePlace& place,
                                                   const wire::Order& order);
  std::string folder() const;
  std::string task_dir() const;
  task::AgentSide task_side() const;
  Result<void> make();
  Result<void> write_launches(const wire::Order& order);
  Result<std::optional<std::string>> write_key(const wire::Order& order);
  Result<void> launch(const wire::Order& order, uint32_t local, std::optional<std::string> key);
  void start(Rank& rank);
  void look_at(Rank& rank);
  void bury(Rank& rank);
  wire::Rank rank_report(uint32_t local) const;
  int64_t silent_ns(uint32_t local) const;
  void tell(std::string_view what, const Error& error);

  const NodePlace& place_;
  AttemptRecord record_;
  PortHold port_;
  std::vector<Rank> ranks_;  // by local number
  task::Snapshot said_;
  std::optional<uint64_t> saved_;  // the most that it ever said
  bool begun_ = false;
  std::string failed_;  // why nothing of it was started
  std::string told_;    // to the log, last
};

}  // namespace ff::scheduler
