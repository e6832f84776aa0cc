// simulate.cc: events of tasks, and the picture between them.
#include "ops/scheduler/simulate.h"

#include <algorithm>
#include <queue>

#include "ops/scheduler/decide.h"
#include "platform/base/check.h"
#include "platform/base/clock.h"

namespace ff::scheduler {

namespace {

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class Simulation {
 public:
  Simulation(const SimulatedCluster& cluster, const Trace& trace, uint64_t seed, Clock& clock)
      : cluster_(cluster), trace_(trace), clock_(clock), progress_(trace.tasks.size()) {
    SeededRng rng(seed);
    for (Progress& one : progress_) one.answers = rng.unit() < cluster.answering;
    const uint32_t zone_nodes = (cluster.nodes + cluster.zones - 1) / cluster.zones;
    for (uint32_t node = 0; node < cluster.nodes; node++) {
      const uint32_t zone = node / zone_nodes;
      const uint32_t leaf = zone * zone_nodes + node % zone_nodes / cluster.leaf_nodes;
      picture_.nodes.push_back({.zone = zone, .leaf = leaf});
    }
    for (uint32_t i = 0; i < trace.tasks.size(); i++) {
      if (trace.tasks[i].nodes > cluster.nodes) {
        run_.never++;
      } else {
        events_.push({trace.tasks[i].submit_ns, Event::Kind::arrives, i, 0});
      }
    }
  }

  Result<SimulatedRun> run(const Stop& stop) {
    int64_t next_pass_ns = 0;
    bool changed = false;
    while (!events_.empty() || changed) {
      FF_TRY(stop.check());
      const int64_t event_ns = events_.empty() ? kNever : events_.top().at_ns;
      if (changed && next_pass_ns <= event_ns) {
        pass_to(std::max(now_ns_, next_pass_ns));
        decide_now();
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
  // Of a task of the trace.
  struct Progress {
    bool answers = true;
    bool started = false;
    uint32_t attempt = 0;
    uint32_t place = kNobody;  // in the picture
    int64_t done_ns = 0;       // of its work, and saved
    int64_t works_ns = 0;      // since when it works, when it runs; loading comes before
  };

  void pass_to(int64_t at_ns);
  bool happen(const Event& event);
  void decide_now();
  void begin(const Start& start);
  void interrupt(uint32_t place);
  int64_t saved(uint32_t task, int64_t at_ns) const;
  void free_nodes(uint32_t place);
  void remove(uint32_t place);
  SimulatedRun outcome();

  const SimulatedCluster& cluster_;
  const Trace& trace_;
  Clock& clock_;
  Picture picture_;
  std::vector<uint32_t> in_place_;  // task of the trace, by place in the picture
  std::vector<Progress> progress_;
  std::priority_queue<Event> events_;
  int64_t now_ns_ = 0;
  uint64_t waiting_ = 0;
  uint64_t working_ = 0, busied_ = 0;  // nodes that work; that save or load
  double waited_ns_ = 0, worked_ns_ = 0, overhead_ns_ = 0;
  double greedy_lost_ = 0, greedy_bound_ = 0;
  std::vector<double> waits_s_, passes_ms_;
  std::vector<std::pair<int64_t, uint32_t>> loading_;  // until when, nodes: a heap
  SimulatedRun run_;
};

// Time goes on; what loads becomes work on the way.
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
    progress.place = static_cast<uint32_t>(picture_.tasks.size());
    in_place_.push_back(event.task);
    picture_.tasks.push_back({.order = event.task,
                              .user = asked.user,
                              .demand = {.nodes = asked.nodes},
                              .level = asked.level,
                              .limit_ns = asked.limit_ns});
    waiting_++;
    return true;
  }
  if (event.attempt != progress.attempt) return false;
  const uint32_t place = progress.place;
  if (event.kind == Event::Kind::finishes) {
    if (picture_.tasks[place].phase == Phase::stopping)
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
    picture_.tasks[place].phase = Phase::waiting;
    waiting_++;
  }
  return true;
}

void Simulation::decide_now() {
  const int64_t began_ns = clock_.steady_ns();
  const Decision decision = decide(picture_, now_ns_);
  passes_ms_.push_back(static_cast<double>(clock_.steady_ns() - began_ns) / 1e6);
  run_.passes++;
  greedy_lost_ += static_cast<double>(decision.greedy_lost_ns);
  greedy_bound_ += static_cast<double>(decision.greedy_bound_ns);
  for (const Interrupt& one : decision.interrupts) interrupt(one.task);
  for (const Start& start : decision.starts) begin(start);
}

void Simulation::begin(const Start& start) {
  Gang& task = picture_.tasks[start.task];
  const uint32_t index = in_place_[start.task];
  Progress& progress = progress_[index];
  const auto nodes = static_cast<uint32_t>(start.nodes.size());
  for (const uint32_t node : start.nodes) {
    FF_CHECK(picture_.nodes[node].task == kNobody);
    picture_.nodes[node].task = start.task;
  }
  task.phase = Phase::running;
  task.nodes = start.nodes;
  task.charged = start.level;
  task.started_ns = now_ns_;
  waiting_--;
  if (!progress.started) waits_s_.push_back(to_seconds(now_ns_ - trace_.tasks[index].submit_ns));
  progress.started = true;
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

// Of its work, what a task that runs would have saved at a time.
int64_t Simulation::saved(uint32_t index, int64_t at_ns) const {
  const Progress& progress = progress_[index];
  const int64_t worked_ns = std::max<int64_t>(0, at_ns - progress.works_ns);
  if (progress.answers) return progress.done_ns + worked_ns;
  return progress.done_ns + worked_ns / cluster_.checkpoint_every_ns * cluster_.checkpoint_every_ns;
}

void Simulation::interrupt(uint32_t place) {
  Gang& task = picture_.tasks[place];
  const uint32_t index = in_place_[place];
  Progress& progress = progress_[index];
  const auto nodes = static_cast<uint32_t>(task.nodes.size());
  const int64_t kept_ns = saved(index, now_ns_);
  const int64_t worked_ns = std::max<int64_t>(0, now_ns_ - progress.works_ns);
  const auto lost_ns = static_cast<double>(progress.done_ns + worked_ns - kept_ns);
  run_.lost_node_hours += lost_ns * nodes / 3600e9;
  run_.preemptions++;
  if (progress.works_ns > now_ns_) {
    // Still loading: it counts as that until it has stopped.
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
  task.phase = Phase::stopping;
  events_.push({now_ns_ + cluster_.save_ns, Event::Kind::stopped, index, progress.attempt});
}

void Simulation::free_nodes(uint32_t place) {
  for (const uint32_t node : picture_.tasks[place].nodes) picture_.nodes[node].task = kNobody;
  picture_.tasks[place].nodes.clear();
}

// The last one takes its place.
void Simulation::remove(uint32_t place) {
  const auto last = static_cast<uint32_t>(picture_.tasks.size() - 1);
  if (place != last) {
    picture_.tasks[place] = std::move(picture_.tasks[last]);
    in_place_[place] = in_place_[last];
    progress_[in_place_[place]].place = place;
    for (const uint32_t node : picture_.tasks[place].nodes) picture_.nodes[node].task = place;
  }
  picture_.tasks.pop_back();
  in_place_.pop_back();
}

SimulatedRun Simulation::outcome() {
  const double all = waited_ns_ * cluster_.nodes;
  run_.utilisation = all > 0 ? worked_ns_ / all : 1;
  run_.overhead = all > 0 ? overhead_ns_ / all : 0;
  run_.wait_s_p50 = quantile(waits_s_, 0.5);
  run_.wait_s_p99 = quantile(waits_s_, 0.99);
  run_.pass_ms_p50 = quantile(passes_ms_, 0.5);
  run_.pass_ms_p99 = quantile(passes_ms_, 0.99);
  run_.pass_ms_max = quantile(passes_ms_, 1);
  run_.hours = to_seconds(now_ns_) / 3600;
  if (greedy_lost_ > 0) run_.greedy_gap = 1 - greedy_bound_ / greedy_lost_;
  return run_;
}

}  // namespace

Result<SimulatedRun> simulate(const SimulatedCluster& cluster, const Trace& trace, uint64_t seed,
                              Clock& clock, const Stop& stop) {
  return Simulation(cluster, trace, seed, clock).run(stop);
}

}  // namespace ff::scheduler
