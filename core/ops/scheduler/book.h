// The book: all tasks and nodes, and what happens to them. Pure: events go in with the time, what
// is to be kept and what agents are to do comes out. Whoever drives it (service.h) keeps what
// take_changed() names before anybody learns of it, so that a crash loses nothing that was told.
//
// A task's way:
//
//   queued -> preparing -> running -> stopping -> queued | suspended | finished
//
// preparing: all of its nodes make ready, and the first one finds a port; then all start at once.
// stopping: asked; no answer in kAckNs, or no end kSaveNs after the answer: SIGTERM; kTermNs later:
// SIGKILL (schedule.md). An attempt has ended when every node has said that nothing of it is left,
// or was silent so long that its lease is over: only then the task may be placed again, so that it
// never runs twice.
//
// Agents tell all that they have, each time, and get all that they should have: nothing needs to be
// heard exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/scheduler/decide.h"
#include "ops/scheduler/scheduler.pb.h"
#include "platform/base/result.h"

namespace ff::scheduler {

// Numbers that are stored and sent.
enum class TaskPhase : uint32_t { queued, preparing, running, stopping, suspended, finished };
enum class Outcome : uint32_t { none, succeeded, failed, stopped };
enum class StopWhy : uint32_t {
  none,
  preempted,
  stopped,    // by its user
  suspended,  // by its user
  limit,      // its time is over
  drained,    // a node is taken out of service
  node_lost,
  hang,
  failed,      // a rank has
  unprepared,  // a node could not make ready
  restart,     // a rank has asked to be started again
};
constexpr StopWhy kLastStop = StopWhy::restart;
enum class RankState : uint32_t {
  waiting,
  running,
  exited,
  lost,  // its node has ended it, or nobody saw how it ended
};
enum class Action : uint32_t { prepare, run, ask, terminate, kill, forget };
enum class Control : uint32_t { stop, suspend, resume };
// What a verdict has done to its node.
enum class Effect : uint32_t {
  none,
  drained,
  returned,
  spared,    // it would have been drained, but too many are
  unlooked,  // it would have returned, but what had failed was not looked at
};

inline TaskPhase phase_of(const wire::Task& task) { return static_cast<TaskPhase>(task.phase()); }
inline StopWhy why_of(const wire::Attempt& attempt) { return static_cast<StopWhy>(attempt.stop()); }

// It is in service, though its last run of checks has found it bad.
bool in_spite_of_verdict(const wire::Node& node);

std::string_view phase_name(TaskPhase phase);
std::string_view outcome_name(Outcome outcome);
std::string_view stop_name(StopWhy why);

struct Timing {
  int64_t ack_ns = 30 * kSecond;
  int64_t save_ns = 300 * kSecond;
  int64_t term_ns = 30 * kSecond;
  int64_t prepare_ns = 60 * kSecond;
  int64_t quiet_ns = 10 * kSecond;   // a node that was silent for so long gets nothing new
  int64_t lease_ns = 600 * kSecond;  // ranks are killed on a node that has not heard for so long
  int64_t pause_ns = 10 * kSecond;   // before a task that failed starts again
  size_t finished_most = 100'000;    // tasks that are kept; beyond, the oldest are dropped
};

// How nodes are looked after (book_health.cc).
struct Health {
  int64_t every_ns = 0;             // so often an idle node runs its checks; 0: never
  int64_t run_ns = 3600 * kSecond;  // so long they may take
  uint32_t max_drained = 5;         // percent of all nodes, by verdict; one in any case
};

class Book {
 public:
  // `id`: of the store, so that agents follow no other scheduler.
  Book(std::string id, Timing timing, Health health = {});

  // What is stored; before anything else. `now`: below.
  struct Now {
    int64_t steady_ns = 0;
    int64_t wall_ns = 0;
  };
  void load(wire::Task task);
  void load(wire::Node node);
  void load(wire::Quota quota);
  // All is loaded: every node has a full lease from now on.
  void begin(Now now);

  // Of users. Errc::usage names what does not fit. The same request again gives the same task.
  Result<uint64_t> submit(wire::SubmitRequest request, Now now);
  // Errc::not_found, Errc::refused: not in its present state.
  Result<void> control(uint64_t task, Control what, Now now);
  Result<void> drain(const std::string& node, bool drained, std::string why, Now now);
  // Of ff validate, on that node. Errc::not_found; Errc::usage: none that there is.
  Result<wire::VerdictReply> judge(const std::string& node, const wire::Verdict& verdict, Now now);
  Result<void> set_quota(const wire::Quota& quota);
  void drop_quota(const wire::Quota& quota);

  // Of an agent. Errc::refused: a node that must not be heard.
  Result<void> report(const wire::SyncRequest& request, Now now);
  std::vector<wire::Order> orders(const std::string& node) const;
  // The run of checks that it is to do; 0: none.
  uint64_t checks(const std::string& node) const;

  // Time has passed. When something could have changed, decides. Returns when to come again.
  int64_t tick(Now now);

  // Whether something has changed since the last decision.
  bool undecided() const { return undecided_; }

  // Records that have changed since the last call.
  struct Changed {
    std::set<uint64_t> tasks;
    std::set<std::string> nodes;
    std::set<std::string> quotas;  // by key
    std::set<std::pair<int64_t, uint64_t>>
        dropped;  // tasks: when they were finished, and their ids
    bool empty() const {
      return tasks.empty() && nodes.empty() && quotas.empty() && dropped.empty();
    }
  };
  Changed take_changed();
  // Nodes whose orders may be others than before.
  std::set<std::string> take_ordered();
  // What the operator should hear of nodes.
  struct Notice {
    bool is_warning = false;
    std::string node, text;
  };
  std::vector<Notice> take_notices();

  const wire::Task* task(uint64_t id) const;
  static bool has_nodes(const wire::Task& task);
  const std::map<uint64_t, wire::Task>& tasks() const { return tasks_; }
  // Tasks that are not finished.
  const std::set<uint64_t>& open() const { return open_; }
  // Those that are, by when they were.
  const std::set<std::pair<int64_t, uint64_t>>& finished() const { return finished_; }
  const wire::Node* node(const std::string& name) const;
  std::vector<wire::ListedNode> listed_nodes(Now now) const;
  const std::map<std::string, wire::Quota>& quotas() const { return quotas_; }
  static std::string quota_key(const wire::Quota& quota);
  // Why a task waits, as of the last decision.
  std::optional<wire::Waiting> waiting(uint64_t task) const;
  const std::string& id() const { return id_; }
  const Timing& timing() const { return timing_; }
  const Health& health() const { return health_; }

 private:
  // What is known of a node and not kept.
  struct Seen {
    bool heard = false;    // since the start
    int64_t heard_ns = 0;  // steady; the start, before it was heard
    std::string boot;
    uint64_t task = 0;  // that has it
    // What the agent holds that nobody wants any more.
    std::map<std::pair<uint64_t, uint32_t>, bool> strays = {};  // whether something of it lives
    uint64_t run = 0;                                           // of checks, that it is to do
    int64_t run_ns = 0;                                         // since when; steady
    bool checks = false;                                        // it does one, wanted or not
  };
  // What an attempt's nodes have said, and is not kept.
  struct Part {
    enum class State : uint8_t { waiting, prepared, living, ended } state = State::waiting;
    std::map<uint32_t, int32_t> statuses = {};  // of ranks that have ended, by local number
    bool has_lost = false;                      // a rank, which is not the rank's doing
    int64_t silent_ns = 0;                      // of the rank that is least so
    // The rank that is most so.
    struct {
      uint32_t local = 0;
      int64_t silent_ns = -1;
      std::optional<uint64_t> step = {};  // of its last heartbeat
    } quietest = {};
    std::string text = {};
  };
  struct Live {
    std::map<std::string, Part> parts;                    // by node
    int64_t placed_ns = 0, started_ns = 0, saved_ns = 0;  // steady
    int64_t asked_ns = 0, acked_ns = 0, terminated_ns = 0, killed_ns = 0;
  };

  wire::Attempt& attempt(wire::Task& task) { return *task.mutable_attempts()->rbegin(); }
  const wire::Attempt& attempt(const wire::Task& task) const { return *task.attempts().rbegin(); }
  void hear(const wire::Held& held, const std::string& node, Now now);
  void hear_part(wire::Task& task, const wire::Held& held, const std::string& node, Now now);
  bool is_over(const std::string& node, Now now) const;

  // Attempts (book_attempt.cc).
  bool all_ended(const wire::Task& task, Now now) const;
  std::optional<std::pair<uint32_t, int32_t>> failed_rank(const wire::Task& task) const;
  // "no rank has …; rank 3 was the first …": empty, when it does not hang.
  std::string how_it_hangs(const wire::Task& task, Now now) const;
  void advance(wire::Task& task, Now now);
  void advance_preparing(wire::Task& task, Now now);
  void advance_running(wire::Task& task, Now now);
  void advance_stopping(wire::Task& task, Now now);
  void ask_to_stop(wire::Task& task, StopWhy why, std::string text, Now now);
  void end_attempt(wire::Task& task, Now now);
  void finish(wire::Task& task, Outcome outcome, std::string text, Now now);
  void drop_old();
  // It starts no sooner than after the pause.
  void queue_again(wire::Task& task, int64_t pause_ns, Now now);
  // When an attempt that was asked to stop gets SIGTERM.
  int64_t terminates_ns(const wire::Attempt& tried, const Live& live) const;
  int64_t next_deadline(const wire::Task& task, const Live& live) const;

  // Decisions (book_plan.cc).
  void decide_now(Now now);
  Picture picture(Now now, std::vector<uint64_t>& tasks, std::vector<std::string>& nodes) const;
  void place(wire::Task& task, const Start& start, const std::vector<std::string>& nodes, Now now);
  bool is_usable(const std::string& node, Now now) const;
  // A node that was silent for so long gets nothing new.
  int64_t quiet_ns() const { return std::min(timing_.quiet_ns, timing_.lease_ns); }

  // Health (book_health.cc).
  bool is_present(const std::string& node, Now now) const;
  bool is_validating(const std::string& node) const;
  void keep_health(const wire::Node& before, wire::Node& after) const;
  void hear_checks(const wire::SyncRequest& request, Now now);
  void end_run(const std::string& name, const wire::Verdict& verdict, Now now);
  Effect apply(wire::Node& node, const wire::Verdict& verdict, Now now);
  size_t drained_by_verdict() const;
  size_t most_drained() const;
  int64_t due_ns(const wire::Node& node) const;
  std::vector<wire::Spec> demands() const;
  void date(wire::Node& node, Now now);
  uint32_t validating_for(const wire::Spec& spec) const;
  int64_t look_after(Now now);
  void start_runs(std::vector<std::pair<int64_t, std::string>> due, size_t running, Now now);
  void note(bool is_warning, const std::string& node, std::string text);

  void open(const wire::Task& task);
  void change(wire::Task& task);
  void order(const wire::Task& task);

  const std::string id_;
  const Timing timing_;
  const Health health_;
  std::map<uint64_t, wire::Task> tasks_;
  std::map<std::string, wire::Node> nodes_;
  std::map<std::string, wire::Quota> quotas_;
  std::map<std::string, Seen> seen_;
  std::map<uint64_t, Live> live_;                    // of tasks with nodes
  std::set<uint64_t> open_;                          // tasks that are not finished
  std::set<std::pair<int64_t, uint64_t>> finished_;  // by when they were
  std::map<uint32_t, size_t> open_of_;               // how many, by user
  std::map<uint64_t, int64_t> ready_ns_;  // of those that pause, steady: when they may start
  std::map<uint64_t, wire::Waiting> waits_;
  int64_t look_ns_ = kNever;              // steady: when time alone may change what was decided
  std::map<std::string, uint64_t> once_;  // tasks that are not finished, by what makes them one
  uint64_t next_id_ = 1;
  bool undecided_ = true;  // something has changed since the last decision
  int64_t decided_ns_ = 0;
  Changed changed_;
  std::set<std::string> ordered_;
  std::vector<Notice> notices_;
  mutable Names names_;
};

}  // namespace ff::scheduler
