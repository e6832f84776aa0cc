// Simulated nodes that execute the orders of the scheduler in virtual time, with faults: lost
// replies, silence, restarts of agents and kernels, and a scheduler that is killed and restarted
// from its store.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ops/scheduler/scheduler_state.h"
#include "platform/base/rng.h"

namespace ff::scheduler {

struct SimulatedTask {
  int64_t work_ns = 0;  // to do, over all attempts
  int64_t done_ns = 0;  // and saved
  bool answers = true;  // saves and exits when asked to stop
  bool obeys = true;    // SIGTERM
  int fails = 0;        // number of failures before it succeeds
};

class SimulatedNode {
 public:
  SimulatedNode(std::string name, uint32_t number) : name_(std::move(name)) {
    facts_.set_name(name_);
    facts_.set_group("default");
    facts_.set_zone(number % 2 == 0 ? "a" : "b");
    facts_.set_leaf("leaf" + std::to_string(number / 4));
    facts_.set_address(name_);
  }

  struct Held {
    bool prepared = false, runs = false, ended = false, acked = false, lost = false;
    int32_t status = 0;
    int64_t since_ns = 0, leaves_ns = 0;
    int64_t killed_ns = 0;
  };
  using Key = std::pair<uint64_t, uint32_t>;

  const std::string& name() const { return name_; }
  wire::Node& facts() { return facts_; }
  const std::map<Key, Held>& held() const { return held_; }
  std::set<Key> live_ranks() const {
    std::set<Key> living;
    for (const auto& [key, held] : held_) {
      if (held.runs && !held.ended) living.insert(key);
    }
    return living;
  }

  wire::SyncRequest request() const {
    wire::SyncRequest request;
    *request.mutable_node() = facts_;
    request.set_boot(std::to_string(boots_));
    request.set_scheduler(scheduler_);
    if (run_ != 0) {
      request.mutable_checks()->set_run(run_);
      request.mutable_checks()->set_runs(checks());
      // Some fail, some could not run.
      wire::Verdict& found = *request.mutable_checks()->mutable_verdict();
      found.set_verdict(1 + static_cast<uint32_t>(runs_begun_ % 4));
      found.add_checks("log.kernel");
      if (found.verdict() > 1) found.add_failed("log.kernel");
    }
    for (const auto& [key, held] : held_) {
      wire::Held& one = *request.add_held();
      one.set_task(key.first);
      one.set_attempt(key.second);
      one.set_port(29'500);
      one.set_prepared(held.prepared);
      one.set_acked(held.acked);
      wire::Rank& rank = *one.add_ranks();
      rank.set_state(static_cast<uint32_t>(held.lost    ? RankState::lost
                                           : held.ended ? RankState::exited
                                           : held.runs  ? RankState::running
                                                        : RankState::waiting));
      rank.set_status(held.status);
    }
    return request;
  }

  void apply(const std::string& scheduler, const std::vector<wire::Order>& orders, int64_t lease_ns,
             int64_t now_ns, std::map<uint64_t, SimulatedTask>& tasks) {
    scheduler_ = scheduler;
    lease_until_ns_ = now_ns + lease_ns;
    for (const wire::Order& order : orders) {
      const Key key(order.task(), order.attempt());
      const auto action = static_cast<OrderAction>(order.action());
      if (action == OrderAction::prepare) {
        held_[key].prepared = true;
        continue;
      }
      const auto found = held_.find(key);
      if (found == held_.end()) continue;
      Held& held = found->second;
      const SimulatedTask& task = tasks.at(key.first);
      if (action == OrderAction::run && !held.runs) {
        EXPECT_TRUE(held.prepared);
        held.runs = true;
        held.since_ns = now_ns;
      } else if (action == OrderAction::clean_up) {
        EXPECT_TRUE(!held.runs || held.ended);
        held_.erase(found);
      } else if (!held.runs) {
        if (action == OrderAction::terminate || action == OrderAction::kill) held_.erase(found);
      } else if (action == OrderAction::request_stop && task.answers) {
        if (!held.acked) held.leaves_ns = now_ns + 5 * kSecond;
        held.acked = true;
      } else if (action == OrderAction::kill || (action == OrderAction::terminate && task.obeys)) {
        end(held, 9);
      }
    }
  }

  // Starts the validation that it should run.
  void apply_validation(uint64_t run, int64_t now_ns) {
    if (run == run_) return;
    run_ = run;
    if (run == 0) return;
    runs_begun_++;
    run_ends_ns_ = now_ns + static_cast<int64_t>(10 + 20 * (runs_begun_ % 5)) * kSecond;
    runs_ = true;
  }
  bool checks() const { return run_ != 0 && runs_; }
  uint64_t runs_begun() const { return runs_begun_; }

  // Advances the work; ranks exit by themselves, or when the lease expires.
  void pass(int64_t now_ns, std::map<uint64_t, SimulatedTask>& tasks) {
    if (now_ns >= run_ends_ns_) runs_ = false;
    for (auto& [key, held] : held_) {
      if (!held.runs || held.ended) continue;
      SimulatedTask& task = tasks.at(key.first);
      if (now_ns >= lease_until_ns_) {
        held.lost = true;
        end(held, 9);
      } else if (task.fails > 0 && now_ns - held.since_ns > 20 * kSecond) {
        task.fails--;
        end(held, 256);
      } else if (held.acked && now_ns >= held.leaves_ns) {
        task.done_ns =
            std::max(task.done_ns, task.done_ns + held.leaves_ns - held.since_ns - 5 * kSecond);
        end(held, 0);
      } else if (!held.acked && task.done_ns + now_ns - held.since_ns >= task.work_ns) {
        end(held, 0);
      }
    }
  }

  // A reboot: no rank runs any more, and the agent reports its ranks as lost.
  void reboot() {
    boots_++;
    held_.clear();
    run_ = 0;
  }

  bool cut = false;

 private:
  static void end(Held& held, int32_t status) {
    held.ended = true;
    held.status = status;
  }

  const std::string name_;
  wire::Node facts_;
  std::string scheduler_;
  uint64_t boots_ = 1;
  int64_t lease_until_ns_ = 0;
  std::map<Key, Held> held_;
  uint64_t run_ = 0, runs_begun_ = 0;  // of checks
  bool runs_ = false;
  int64_t run_ends_ns_ = 0;
};

class SimulatedNodes {
 public:
  explicit SimulatedNodes(uint64_t seed, uint32_t count, HealthPolicy how = {})
      : rng(seed), health(how) {
    for (uint32_t i = 0; i < count; i++) {
      nodes.push_back(std::make_unique<SimulatedNode>("n" + std::to_string(i), i));
    }
    start_scheduler();
  }

  // Stores the changes of the scheduler, which it may then report.
  void keep() {
    const SchedulerState::Changes changed = scheduler->take_changes();
    for (const uint64_t id : changed.tasks)
      stored_tasks[id] = scheduler->task(id)->SerializeAsString();
    for (const auto& name : changed.nodes)
      stored_nodes[name] = scheduler->node(name)->SerializeAsString();
    (void)scheduler->take_nodes_with_new_orders();
  }

  void start_scheduler() {
    scheduler = std::make_unique<SchedulerState>("scheduler", timeouts, health, limits);
    for (const auto& [id, bytes] : stored_tasks) {
      wire::Task task;
      EXPECT_TRUE(task.ParseFromString(bytes));
      scheduler->load(std::move(task));
    }
    for (const auto& [name, bytes] : stored_nodes) {
      wire::Node node;
      EXPECT_TRUE(node.ParseFromString(bytes));
      scheduler->load(std::move(node));
    }
    scheduler->begin(now());
  }

  uint64_t submit(wire::Spec spec, SimulatedTask task) {
    wire::SubmitRequest request;
    request.mutable_owner()->set_uid(1000);
    request.mutable_owner()->set_name("ada");
    if (spec.argv().empty()) spec.add_argv("train");
    if (spec.cwd().empty()) spec.set_cwd("/");
    if (spec.group().empty()) spec.set_group("default");
    if (spec.nodes() == 0) spec.set_nodes(1);
    if (spec.processes() == 0) spec.set_processes(1);
    if (!spec.has_priority()) spec.set_priority(30);
    *request.mutable_spec() = std::move(spec);
    auto id = scheduler->submit(std::move(request), SubmittedBy::user, now());
    EXPECT_TRUE(id.ok());
    tasks[*id] = task;
    keep();
    return *id;
  }

  void sync(SimulatedNode& node, bool answer_arrives = true) {
    const auto told = scheduler->apply_report(node.request(), now());
    EXPECT_TRUE(told.ok());
    keep();
    const auto orders = scheduler->orders(node.name());
    if (!answer_arrives) return;
    node.apply(scheduler->id(), orders, timeouts.lease_ns, steady_ns, tasks);
    node.apply_validation(scheduler->validation_run(node.name()), steady_ns);
  }

  // One second: everything happens once, in random order.
  void step(bool faults) {
    steady_ns += kSecond;
    // The wall clock is set, in both directions.
    if (faults && rng.below(100) == 0) {
      const auto hours = static_cast<int64_t>(rng.below(97)) - 48;
      wall_base_ns += hours * 3600 * kSecond;
    }
    for (auto& node : nodes) {
      node->pass(steady_ns, tasks);
      check();
      if (faults && rng.below(400) == 0) node->cut = true;
      if (!faults || rng.below(300) == 0) node->cut = false;
      if (faults && rng.below(2000) == 0) node->reboot();
      if (node->cut || rng.below(3) == 0) continue;
      sync(*node, !faults || rng.below(20) != 0);
      check();
    }
    (void)scheduler->tick(now());
    // The scheduler is killed before or after its decision was stored.
    if (faults && rng.below(150) == 0) {
      if (rng.below(2) == 0) keep();
      start_scheduler();
    } else {
      keep();
    }
    check();
  }

  // No task has running ranks of two attempts; no node runs ranks of two tasks, or ranks and
  // checks.
  void check() {
    std::map<uint64_t, std::set<uint32_t>> attempts;
    for (const auto& node : nodes) {
      const auto living = node->live_ranks();
      EXPECT_LE(living.size(), node->checks() ? 0u : 1u);
      for (const auto& [task, attempt] : living) attempts[task].insert(attempt);
    }
    for (const auto& [task, alive] : attempts) EXPECT_EQ(alive.size(), 1u) << "task " << task;
  }

  TaskPhase phase(uint64_t id) const {
    return static_cast<TaskPhase>(scheduler->task(id)->phase());
  }
  TaskOutcome outcome(uint64_t id) const {
    return static_cast<TaskOutcome>(scheduler->task(id)->outcome());
  }
  bool all_finished() const {
    for (const auto& [id, task] : tasks) {
      if (phase(id) != TaskPhase::finished) return false;
    }
    return true;
  }
  SchedulerState::Now now() const {
    return {.steady_ns = steady_ns, .wall_ns = wall_base_ns + steady_ns};
  }

  SeededRng rng;
  const HealthPolicy health;
  SchedulerTimeouts timeouts = {.lease_ns = 120 * kSecond};
  TaskLimits limits = {};
  int64_t steady_ns = 1000 * kSecond;
  int64_t wall_base_ns = 1'700'000'000 * kSecond;
  std::vector<std::unique_ptr<SimulatedNode>> nodes;
  std::map<uint64_t, SimulatedTask> tasks;
  std::map<uint64_t, std::string> stored_tasks;
  std::map<std::string, std::string> stored_nodes;
  std::unique_ptr<SchedulerState> scheduler;
};

}  // namespace ff::scheduler
