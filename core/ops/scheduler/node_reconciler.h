// All that one node holds for the scheduler: attempts, in folders that outlive the agent, and the
// lease, which limits how long ranks may run without contact to the scheduler.
//
//   DIR/lock       held by the agent that uses this folder
//   DIR/lease      time of the last contact and duration of the lease (shim/rank_lease.h)
//   DIR/attempts/  attempts on this node (local_attempt.h)
//   DIR/ended/     logs of ended attempts, kept for a while
//
// The lease in the file may be one cycle older than the lease in memory: a reader of the file ends
// ranks too early rather than too late.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/ended_logs.h"
#include "ops/scheduler/local_attempt.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/scheduler/task_logs.h"
#include "platform/auth/key.h"

namespace ff::scheduler {

class NodeReconciler {
 public:
  struct Options {
    std::string dir;
    std::string tasks;              // parent of the $FF_TASK_DIR folders; best on a tmpfs
    std::vector<std::string> shim;  // command of the shim
    std::string cgroup;
    std::string zone;        // of this node; FF_ZONE of its ranks
    uint32_t uid = 0;        // of this process
    LogRetention logs = {};  // of ended attempts
  };
  // Loads what an earlier agent left. Errc::refused: another agent uses the folder.
  static Result<std::unique_ptr<NodeReconciler>> open(io::Disk& disk, Clock& clock,
                                                      Options options);
  ~NodeReconciler();

  // The report to the scheduler.
  struct Report {
    std::vector<wire::Held> held;
    std::string scheduler;   // id of the owner; empty: nothing is held
    std::string change_key;  // differs from the last one: send the report at once
  };
  // Applies the orders and refreshes all attempts. Blocks; one thread at a time.
  Report reconcile(std::optional<wire::SyncReply> orders);

  const std::string& boot() const { return context_.boot; }
  const TaskLogs& logs() const { return logs_; }

  // Renews the lease: a call sent at `sent_ns` was answered. From any thread.
  void set_lease(int64_t sent_ns, int64_t lease_ns);
  int64_t lease_until_ns() const { return lease_until_ns_.load(); }
  // The number of ranks that may be running; kill_all_ranks() kills them, and blocks.
  size_t live_ranks() const { return live_ranks_.all().size(); }
  void kill_all_ranks();
  // Stops all ranks, as lost by the node: SIGTERM, then SIGKILL after `patience_ns`. Call it when
  // no other thread uses this object. False: some ranks hang in the kernel.
  bool stop_all_ranks(int64_t patience_ns);

 private:
  NodeReconciler(io::Disk& disk, Clock& clock, Options options, std::string boot,
                 std::unique_ptr<io::File> lock);
  Result<void> load();
  void read_lease();
  void write_lease();
  void apply(const wire::SyncReply& reply);
  Result<void> prepare(const std::string& scheduler, AttemptName name, const wire::Order& order);
  // False: the attempt is no longer held.
  bool execute(LocalAttempt& attempt, const wire::Order& order);
  void prune_logs();

  io::Disk& disk_;
  Clock& clock_;
  const Options options_;
  const std::unique_ptr<io::File> lock_;
  std::unique_ptr<io::File> lease_file_;
  auth::SecureRng rng_;
  LiveRanks live_ranks_;
  std::atomic<int64_t> lease_until_ns_ = 0, success_ns_ = 0, lease_ns_ = 0;
  int64_t lease_written_ns_ = 0;  // the contact time in the lease file
  NodeContext context_;
  TaskLogs logs_;
  std::map<AttemptName, std::unique_ptr<LocalAttempt>> attempts_;
  std::map<AttemptName, std::string> failed_prepares_;  // and the reason
  EndedLogs ended_logs_;
  int64_t logs_scanned_ns_ = 0;
  std::string last_warning_;
};

}  // namespace ff::scheduler
