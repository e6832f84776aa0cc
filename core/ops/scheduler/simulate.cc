// simulate.cc: task events, and the snapshot between them.
#include "ops/scheduler/simulate.h"

#include <algorithm>
#include <queue>

#include "ops/scheduler/decide.h"
#include "platform/base/check.h"
#include "platform/base/clock.h"

namespace ff::scheduler {

namespace {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class Simulation {
 public:
  Simulation(const SimulatedCluster& cluster, const Trace& trace, uint64_t seed, Clock& clock)
      : cluster_(cluster),
        trace_(trace),
        clock_(clock),
        zone_nodes_((cluster.nodes + cluster.zones - 1) / cluster.zones),
        progress_(trace.tasks.size()) {
    SeededRng rng(seed);
    for (Progress& one : progress_) one.answers = rng.uniform01() < cluster.answering;
    run_.waits_s.resize(trace.tasks.size(), -1);
    for (uint32_t node = 0; node < cluster.nodes; node++) {
      const uint32_t zone = node / zone_nodes_;
      const uint32_t leaf = zone * zone_nodes_ + node % zone_nodes_ / cluster.leaf_nodes;
      snapshot_.nodes.push_back({.zone = zone, .leaf = leaf});
    }
    for (uint32_t i = 0; i < trace.tasks.size(); i++) {
      if (trace.tasks[i].nodes > cluster.nodes) {
        run_.never++;
      } else {
        events_.push({trace.tasks[i].submit_ns, Event::Kind::arrives, i, 0});
      }
    }
  }

  Result<SimulationResult> run(const StopToken& stop) {
    int64_t next_pass_ns = 0;
    bool changed = false;
    while (!events_.empty() || changed) {
      FF_TRY(stop.check());
      const int64_t event_ns = events_.empty() ? kNever : events_.top().at_ns;
      if (changed && next_pass_ns <= event_ns) {
        pass_to(std::max(now_ns_, next_pass_ns));
        run_pass();
        changed = false;
        next_pass_ns = now_ns_ + cluster_.pass_every_ns;
        continue;
      }
      pass_to(event_ns);
      const Event event = events_.top();
      events_.pop();
      changed = happen(event) || changed;
    }
    return outcome();
  }

 private:
  struct Event {
    enum class Kind : uint8_t { arrives, finishes, stopped } kind;
    int64_t at_ns;
    uint32_t task;
    uint32_t attempt;
    Event(int64_t at, Kind what, uint32_t which, uint32_t tried)
        : kind(what), at_ns(at), task(which), attempt(tried) {}
    bool operator<(const Event& other) const {
      return std::tuple(at_ns, task, attempt, kind) >
             std::tuple(other.at_ns, other.task, other.attempt, other.kind);
    }
  };
  // The progress of a task of the trace.
  struct Progress {
    bool answers = true;
    uint32_t attempt = 0;
    uint32_t place = kNoIndex;  // index in the snapshot
    int64_t done_ns = 0;        // completed and saved work
    int64_t works_ns = 0;       // start of work after loading, while it runs
  };

  void pass_to(int64_t at_ns);
  bool happen(const Event& event);
  void run_pass();
  void begin(const TaskStart& start);
  void interrupt(uint32_t place);
  int64_t saved(uint32_t task, int64_t at_ns) const;
  void free_nodes(uint32_t place);
  void remove(uint32_t place);
  SimulationResult outcome();

  const SimulatedCluster& cluster_;
  const Trace& trace_;
  Clock& clock_;
  const uint32_t zone_nodes_;
  ClusterSnapshot snapshot_;
  std::vector<uint32_t> in_place_;  // task of the trace, by index in the snapshot
  std::vector<Progress> progress_;
  std::priority_queue<Event> events_;
  int64_t now_ns_ = 0;
  uint64_t waiting_ = 0;
  uint64_t working_ = 0, busied_ = 0;  // nodes that work; that save or load
  double waited_ns_ = 0, worked_ns_ = 0, overhead_ns_ = 0;
  double greedy_lost_ = 0, greedy_bound_ = 0;
  std::vector<double> passes_ms_;
  std::vector<std::pair<int64_t, uint32_t>> loading_;  // until when, nodes; a heap
  SimulationResult run_;
};

// Advances the time; loading tasks start to work on the way.
void Simulation::pass_to(int64_t at_ns) {
  while (now_ns_ < at_ns) {
    int64_t until_ns = at_ns;
    if (!loading_.empty()) until_ns = std::min(until_ns, loading_.front().first);
    const auto step = static_cast<double>(until_ns - now_ns_);
    if (waiting_ > 0) {
      waited_ns_ += step;
      worked_ns_ += step * static_cast<double>(working_);
      overhead_ns_ += step * static_cast<double>(busied_);
    }
    now_ns_ = until_ns;
    while (!loading_.empty() && loading_.front().first <= now_ns_) {
      const uint32_t nodes = loading_.front().second;
      busied_ -= nodes;
      working_ += nodes;
      std::ranges::pop_heap(loading_, std::greater<>());
      loading_.pop_back();
    }
  }
}

bool Simulation::happen(const Event& event) {
  Progress& progress = progress_[event.task];
  const TraceTask& asked = trace_.tasks[event.task];
  if (event.kind == Event::Kind::arrives) {
    progress.place = static_cast<uint32_t>(snapshot_.tasks.size());
    in_place_.push_back(event.task);
    snapshot_.tasks.push_back({.order = event.task,
                               .user = asked.user,
                               .request = {.nodes = asked.nodes},
                               .level = asked.level,
                               .limit_ns = asked.limit_ns});
    waiting_++;
    return true;
  }
  if (event.attempt != progress.attempt) return false;
  const uint32_t place = progress.place;
  if (event.kind == Event::Kind::finishes) {
    if (snapshot_.tasks[place].phase == GangPhase::stopping)
      return false;  // it saves, and is done later
    working_ -= asked.nodes;
    free_nodes(place);
    remove(place);
    run_.finished++;
    return true;
  }
  busied_ -= asked.nodes;
  free_nodes(place);
  if (progress.done_ns >= asked.run_ns) {
    remove(place);
    run_.finished++;
  } else {
    snapshot_.tasks[place].phase = GangPhase::waiting;
    waiting_++;
  }
  return true;
}

void Simulation::run_pass() {
  const int64_t began_ns = clock_.steady_ns();
  const SchedulingDecision decision = decide(snapshot_, now_ns_);
  passes_ms_.push_back(static_cast<double>(clock_.steady_ns() - began_ns) / 1e6);
  run_.passes++;
  greedy_lost_ += static_cast<double>(decision.greedy_lost_ns);
  greedy_bound_ += static_cast<double>(decision.greedy_bound_ns);
  for (const Preemption& one : decision.preemptions) interrupt(one.task);
  for (const TaskStart& start : decision.starts) begin(start);
}

void Simulation::begin(const TaskStart& start) {
  Gang& task = snapshot_.tasks[start.task];
  const uint32_t index = in_place_[start.task];
  Progress& progress = progress_[index];
  const auto nodes = static_cast<uint32_t>(start.nodes.size());
  for (const uint32_t node : start.nodes) {
    FF_CHECK(snapshot_.nodes[node].task == kNoIndex);
    snapshot_.nodes[node].task = start.task;
  }
  task.phase = GangPhase::running;
  task.nodes = start.nodes;
  task.charged_level = start.level;
  task.started_ns = now_ns_;
  waiting_--;
  double& wait_s = run_.waits_s[index];
  if (wait_s < 0) wait_s = to_seconds(now_ns_ - trace_.tasks[index].submit_ns);
  progress.attempt++;
  progress.works_ns = now_ns_ + (progress.done_ns > 0 ? cluster_.load_ns : 0);
  task.saved_ns = progress.works_ns;
  if (progress.works_ns > now_ns_) {
    busied_ += nodes;
    loading_.emplace_back(progress.works_ns, nodes);
    std::ranges::push_heap(loading_, std::greater<>());
  } else {
    working_ += nodes;
  }
  const int64_t left_ns = trace_.tasks[index].run_ns - progress.done_ns;
  events_.push({progress.works_ns + left_ns, Event::Kind::finishes, index, progress.attempt});
}

// The work that a running task would have saved at a given time.
int64_t Simulation::saved(uint32_t index, int64_t at_ns) const {
  const Progress& progress = progress_[index];
  const int64_t worked_ns = std::max<int64_t>(0, at_ns - progress.works_ns);
  if (progress.answers) return progress.done_ns + worked_ns;
  return progress.done_ns + worked_ns / cluster_.checkpoint_every_ns * cluster_.checkpoint_every_ns;
}

void Simulation::interrupt(uint32_t place) {
  Gang& task = snapshot_.tasks[place];
  const uint32_t index = in_place_[place];
  Progress& progress = progress_[index];
  const auto nodes = static_cast<uint32_t>(task.nodes.size());
  const int64_t kept_ns = saved(index, now_ns_);
  const int64_t worked_ns = std::max<int64_t>(0, now_ns_ - progress.works_ns);
  const auto lost_ns = static_cast<double>(progress.done_ns + worked_ns - kept_ns);
  run_.lost_node_hours += lost_ns * nodes / 3600e9;
  run_.preemptions++;
  if (progress.works_ns > now_ns_) {
    // Still loading: its nodes count as such until it has stopped.
    const auto found = std::ranges::find(loading_, std::pair(progress.works_ns, nodes));
    FF_CHECK(found != loading_.end());
    loading_.erase(found);
    std::ranges::make_heap(loading_, std::greater<>());
  } else {
    working_ -= nodes;
    busied_ += nodes;
  }
  progress.done_ns = kept_ns;
  progress.attempt++;
  task.phase = GangPhase::stopping;
  events_.push({now_ns_ + cluster_.save_ns, Event::Kind::stopped, index, progress.attempt});
}

void Simulation::free_nodes(uint32_t place) {
  for (const uint32_t node : snapshot_.tasks[place].nodes) snapshot_.nodes[node].task = kNoIndex;
  snapshot_.tasks[place].nodes.clear();
}

// The last task takes its place.
void Simulation::remove(uint32_t place) {
  const auto last = static_cast<uint32_t>(snapshot_.tasks.size() - 1);
  if (place != last) {
    snapshot_.tasks[place] = std::move(snapshot_.tasks[last]);
    in_place_[place] = in_place_[last];
    progress_[in_place_[place]].place = place;
    for (const uint32_t node : snapshot_.tasks[place].nodes) snapshot_.nodes[node].task = place;
  }
  snapshot_.tasks.pop_back();
  in_place_.pop_back();
}

SimulationResult Simulation::outcome() {
  const double all = waited_ns_ * cluster_.nodes;
  run_.utilization = all > 0 ? worked_ns_ / all : 1;
  run_.overhead = all > 0 ? overhead_ns_ / all : 0;
  std::vector<double> waits_s, wide_waits_s;
  for (size_t i = 0; i < run_.waits_s.size(); i++) {
    if (run_.waits_s[i] < 0) continue;
    waits_s.push_back(run_.waits_s[i]);
    if (trace_.tasks[i].nodes > zone_nodes_) wide_waits_s.push_back(run_.waits_s[i]);
  }
  run_.wait_s_p50 = quantile(waits_s, 0.5);
  run_.wait_s_p99 = quantile(waits_s, 0.99);
  run_.wide = wide_waits_s.size();
  run_.wide_wait_s_p50 = quantile(wide_waits_s, 0.5);
  run_.pass_ms_p50 = quantile(passes_ms_, 0.5);
  run_.pass_ms_p99 = quantile(passes_ms_, 0.99);
  run_.pass_ms_max = quantile(passes_ms_, 1);
  run_.hours = to_seconds(now_ns_) / 3600;
  if (greedy_lost_ > 0) run_.greedy_gap = 1 - greedy_bound_ / greedy_lost_;
  return run_;
}

}  // namespace

Result<SimulationResult> simulate(const SimulatedCluster& cluster, const Trace& trace,
                                  uint64_t seed, Clock& clock, const StopToken& stop) {
  return Simulation(cluster, trace, seed, clock).run(stop);
}

}  // namespace ff::scheduler
