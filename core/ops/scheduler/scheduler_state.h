// The state machine of the scheduler: all tasks and nodes, and every change to them. It does no
// I/O: events go in with their time; records to store and orders for agents come out. The caller
// (service.h) stores what take_changes() names before it answers anybody, so a crash loses nothing
// that was acknowledged.
//
// The states of a task:
//
//   queued -> preparing -> running -> stopping -> queued | suspended | finished
//
// preparing: all nodes prepare the attempt, and the first node reserves a port; then all start at
// once.
// stopping: the ranks are asked to stop. Without an acknowledgement within ack_ns, or an exit
// within save_ns after it, they get SIGTERM; term_ns later SIGKILL (schedule.md). An attempt has
// ended when each node reports that nothing of it is left, or was silent until its lease expired.
// Only then the task may be placed again: it never runs twice at the same time.
//
// Agents report all that they hold in every call and get all that they should hold, so no message
// needs to be delivered exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/scheduler/decide.h"
#include "ops/scheduler/kept_records.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/scheduler/task_limits.h"
#include "platform/base/result.h"

namespace ff::scheduler {

// The numbers are stored and sent: add values at the end, never change one.
enum class TaskPhase : uint32_t { queued, preparing, running, stopping, suspended, finished };
enum class TaskOutcome : uint32_t { none, succeeded, failed, stopped };
enum class StopReason : uint32_t {
  none,
  preempted,
  stopped,    // by its user
  suspended,  // by its user
  limit,      // the time limit has passed
  drained,    // a node was taken out of service
  node_lost,
  hang,
  failed,      // a rank failed
  unprepared,  // a node could not prepare the attempt
  restart,     // a rank asked for a restart by its exit code
};
constexpr StopReason kLastStopReason = StopReason::restart;
enum class RankState : uint32_t {
  waiting,
  running,
  exited,
  lost,  // its node killed it, or its exit status is unknown
};
enum class OrderAction : uint32_t { prepare, run, request_stop, terminate, kill, clean_up };
enum class TaskControl : uint32_t { stop, suspend, resume };
// What a verdict changed on its node.
enum class VerdictEffect : uint32_t {
  none,
  drained,
  returned,
  limit_reached,  // it would have been drained, but HealthPolicy::max_drained_percent is reached
  not_rechecked,  // it would have returned, but the checks that had failed did not run
};

inline TaskPhase phase_of(const wire::Task& task) { return static_cast<TaskPhase>(task.phase()); }
inline StopReason stop_reason_of(const wire::Attempt& attempt) {
  return static_cast<StopReason>(attempt.stop());
}

// The node is in service although its last validation found a fault.
bool is_used_despite_verdict(const wire::Node& node);

std::string_view task_phase_name(TaskPhase phase);
std::string_view task_outcome_name(TaskOutcome outcome);
std::string_view stop_reason_name(StopReason why);

struct SchedulerTimeouts {
  int64_t ack_ns = 30 * kSecond;
  int64_t save_ns = 300 * kSecond;
  int64_t term_ns = 30 * kSecond;
  int64_t prepare_ns = 60 * kSecond;
  int64_t unresponsive_ns = 10 * kSecond;  // a node that is silent for longer gets no new tasks
  int64_t lease_ns =
      600 * kSecond;  // a node kills its ranks when the scheduler is silent for longer
  int64_t pause_ns = 10 * kSecond;  // delay before a failed task starts again
  // Finished tasks that are remembered; also limits their bytes (history_bytes_max()). Beyond it
  // the oldest one of the user who has the most is dropped.
  size_t max_finished_tasks = 100'000;
};

// When nodes are validated and drained (scheduler_state_health.cc).
struct HealthPolicy {
  int64_t validate_every_ns = 0;                 // period of validation of an idle node; 0: never
  int64_t validate_timeout_ns = 3600 * kSecond;  // maximum duration of one validation
  uint32_t max_drained_percent = 5;  // of all nodes, drained by verdict; at least one node
};

class SchedulerState {
 public:
  // `id`: the id of the store. Agents accept orders of this scheduler only.
  SchedulerState(std::string id, SchedulerTimeouts timeouts, HealthPolicy health = {},
                 TaskLimits limits = {});

  // Loads the stored records; before any other call.
  struct Now {
    int64_t steady_ns = 0;
    int64_t wall_ns = 0;
  };
  void load(wire::Task task);
  void load(wire::Node node);
  void load(wire::Quota quota);
  // All records are loaded. Every node gets a full lease from now on.
  void begin(Now now);

  // Calls of users. Errc::usage: names the invalid field; busy: names the limit (task_limits.h).
  // The same request again returns the same task.
  Result<uint64_t> submit(wire::SubmitRequest request, SubmittedBy by, Now now);
  // Errc::not_found; Errc::refused: not possible in the present state of the task.
  Result<void> control(uint64_t task, TaskControl what, Now now);
  Result<void> drain(const std::string& node, bool drained, std::string why, Now now);
  // A verdict of `ff validate` on that node. Errc::not_found; Errc::usage: no valid verdict.
  Result<wire::VerdictReply> record_verdict(const std::string& node, const wire::Verdict& verdict,
                                            Now now);
  Result<void> set_quota(const wire::Quota& quota);
  void remove_quota(const wire::Quota& quota);

  // The report of an agent. Errc::refused: the node belongs to another scheduler.
  Result<void> apply_report(const wire::SyncRequest& request, Now now);
  std::vector<wire::Order> orders(const std::string& node) const;
  // The id of the validation that the node should run; 0: none.
  uint64_t validation_run(const std::string& node) const;

  // Advances the time, and runs a scheduling pass if one is needed. Returns the time of the next
  // call.
  int64_t tick(Now now);

  // Whether something changed since the last scheduling pass.
  bool needs_pass() const { return needs_pass_; }

  // The records that changed since the last call.
  struct Changes {
    std::set<uint64_t> tasks;
    std::set<std::string> nodes;
    std::set<std::string> quotas;  // by key
    std::set<std::pair<int64_t, uint64_t>>
        dropped;  // tasks: when they were finished, and their ids
    bool empty() const {
      return tasks.empty() && nodes.empty() && quotas.empty() && dropped.empty();
    }
  };
  Changes take_changes();
  // Nodes whose orders may have changed.
  std::set<std::string> take_nodes_with_new_orders();
  // Messages about nodes for the log of the operator.
  struct Notice {
    bool is_warning = false;
    std::string node, text;
  };
  std::vector<Notice> take_notices();

  const wire::Task* task(uint64_t id) const;
  static bool has_nodes(const wire::Task& task);
  const std::map<uint64_t, wire::Task>& tasks() const { return tasks_; }
  // Ids of all unfinished tasks.
  const std::set<uint64_t>& unfinished() const { return unfinished_; }
  // Finished tasks, by the time of their end.
  const std::set<std::pair<int64_t, uint64_t>>& finished() const { return finished_; }
  const wire::Node* node(const std::string& name) const;
  std::vector<wire::ListedNode> listed_nodes(Now now) const;
  const std::map<std::string, wire::Quota>& quotas() const { return quotas_; }
  static std::string quota_key(const wire::Quota& quota);
  // Why a task waits, as of the last pass.
  std::optional<wire::Waiting> waiting(uint64_t task) const;
  const std::string& id() const { return id_; }
  const SchedulerTimeouts& timeouts() const { return timeouts_; }
  const HealthPolicy& health() const { return health_; }

 private:
  // State of a node that is not stored.
  struct NodeRuntime {
    bool reported = false;    // since this scheduler started
    int64_t reported_ns = 0;  // steady; the start, before the first report
    std::string boot;
    uint64_t task = 0;  // the task that holds the node; 0: none
    // Attempts that the agent holds and no task needs.
    std::map<std::pair<uint64_t, uint32_t>, bool> orphans = {};  // whether ranks of it run
    uint64_t validation_run = 0;        // the validation that the node should run; 0: none
    int64_t validation_started_ns = 0;  // steady
    bool validates = false;             // the agent reports a running validation
  };
  // What one node reported about an attempt; not stored.
  struct NodePart {
    enum class State : uint8_t { waiting, prepared, running, ended } state = State::waiting;
    std::map<uint32_t, int32_t> statuses = {};  // wait statuses of exited ranks, by local rank
    bool has_lost_rank = false;                 // a rank ended without a fault of its own
    int64_t silent_ns = 0;                      // of the rank with the most recent output
    // The rank that is silent for the longest time.
    struct {
      uint32_t local = 0;
      int64_t silent_ns = -1;
      std::optional<uint64_t> step = {};  // of its last heartbeat
    } most_silent = {};
    std::string text = {};
  };
  struct AttemptRuntime {
    std::map<std::string, NodePart> parts;                // by node
    int64_t placed_ns = 0, started_ns = 0, saved_ns = 0;  // steady
    int64_t asked_ns = 0, acked_ns = 0, terminated_ns = 0, killed_ns = 0;
  };

  wire::Attempt& attempt(wire::Task& task) { return *task.mutable_attempts()->rbegin(); }
  const wire::Attempt& attempt(const wire::Task& task) const { return *task.attempts().rbegin(); }
  void update_attempt(const wire::Held& held, const std::string& node, Now now);
  void update_part(wire::Task& task, const wire::Held& held, const std::string& node, Now now);
  bool lease_is_over(const std::string& node, Now now) const;

  // Attempts (scheduler_state_attempts.cc).
  bool all_ended(const wire::Task& task, Now now) const;
  std::optional<std::pair<uint32_t, int32_t>> failed_rank(const wire::Task& task) const;
  // "no rank has …; rank 3 was the first …"; empty: the task does not hang.
  std::string hang_text(const wire::Task& task, Now now) const;
  void advance(wire::Task& task, Now now);
  void advance_preparing(wire::Task& task, Now now);
  void advance_running(wire::Task& task, Now now);
  void advance_stopping(wire::Task& task, Now now);
  void ask_to_stop(wire::Task& task, StopReason why, std::string text, Now now);
  void end_attempt(wire::Task& task, Now now);
  void finish(wire::Task& task, TaskOutcome outcome, std::string text, Now now);
  void add_finished(const wire::Task& task);
  void drop_finished(const KeptRecords<uint64_t>::Record& record);
  void drop_oldest_finished();
  // Puts the task back into the queue; it starts after `pause_ns` at the earliest.
  void queue_again(wire::Task& task, int64_t pause_ns, Now now);
  // When an attempt in state stopping gets SIGTERM.
  int64_t terminate_at_ns(const wire::Attempt& current, const AttemptRuntime& run_state) const;
  int64_t next_deadline(const wire::Task& task, const AttemptRuntime& run_state) const;

  // Scheduling passes (scheduler_state_placement.cc).
  void run_pass(Now now);
  ClusterSnapshot snapshot(Now now, std::vector<uint64_t>& tasks,
                           std::vector<std::string>& nodes) const;
  void start_attempt(wire::Task& task, const TaskStart& start,
                     const std::vector<std::string>& nodes, Now now);
  bool is_usable(const std::string& node, Now now) const;
  // A node that is silent for longer gets no new tasks.
  int64_t unresponsive_ns() const {
    return std::min(timeouts_.unresponsive_ns, timeouts_.lease_ns);
  }

  // Health (scheduler_state_health.cc).
  bool is_present(const std::string& node, Now now) const;
  bool is_validating(const std::string& node) const;
  void keep_scheduler_fields(const wire::Node& before, wire::Node& after) const;
  void update_validation(const wire::SyncRequest& request, Now now);
  void end_validation(const std::string& name, const wire::Verdict& verdict, Now now);
  VerdictEffect apply_verdict(wire::Node& node, const wire::Verdict& verdict, Now now);
  size_t drained_by_verdict() const;
  size_t max_drained_by_verdict() const;
  int64_t validation_due_ns(const wire::Node& node) const;
  std::vector<wire::Spec> waiting_specs() const;
  void assign_last_run(wire::Node& node, Now now);
  uint32_t validating_for(const wire::Spec& spec) const;
  int64_t schedule_validation(Now now);
  void start_validations(std::vector<std::pair<int64_t, std::string>> due, size_t running, Now now);
  void add_notice(bool is_warning, const std::string& node, std::string text);

  void add_unfinished(const wire::Task& task);
  void change(wire::Task& task);
  void order(const wire::Task& task);

  const std::string id_;
  const SchedulerTimeouts timeouts_;
  const HealthPolicy health_;
  std::map<uint64_t, wire::Task> tasks_;
  std::map<std::string, wire::Node> nodes_;
  std::map<std::string, wire::Quota> quotas_;
  std::map<std::string, NodeRuntime> node_runtimes_;
  std::map<uint64_t, AttemptRuntime> runtimes_;      // of tasks with nodes
  std::set<uint64_t> unfinished_;                    // task ids
  std::set<std::pair<int64_t, uint64_t>> finished_;  // by the time of their end
  KeptRecords<uint64_t> history_;                    // the same tasks, by user
  TaskUsage usage_;                                  // of unfinished tasks
  std::map<uint64_t, int64_t> ready_ns_;             // steady: earliest start of tasks that pause
  std::map<uint64_t, wire::Waiting> waits_;
  int64_t next_pass_ns_ = kNever;  // steady: when the passing of time may change the last decision
  std::map<std::string, uint64_t> once_;  // unfinished tasks, by SubmitRequest::once
  uint64_t next_id_ = 1;
  bool needs_pass_ = true;  // something changed since the last pass
  int64_t passed_ns_ = 0;
  Changes changed_;
  std::set<std::string> nodes_with_new_orders_;
  std::vector<Notice> notices_;
  mutable StringInterner interner_;
};

}  // namespace ff::scheduler
