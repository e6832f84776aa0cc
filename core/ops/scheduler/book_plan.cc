// book_plan.cc: the picture that decisions are made from, what becomes of them, and the orders.
#include <algorithm>

#include "ops/scheduler/book.h"
#include "platform/base/check.h"

namespace ff::scheduler {

bool Book::is_usable(const std::string& name, Now now) const {
  const wire::Node& node = nodes_.at(name);
  return is_present(name, now) && !node.drained() && !node.drained_by_verdict() &&
         !is_validating(name);
}

Picture Book::picture(Now now, std::vector<uint64_t>& tasks,
                      std::vector<std::string>& nodes) const {
  Picture picture;
  picture.stop_ns = timing_.ack_ns + timing_.save_ns + timing_.term_ns;
  std::map<std::string_view, uint32_t> places;
  for (const auto& [name, node] : nodes_) {
    Node one{.group = names_.of(node.group()),
             .zone = names_.of(node.zone()),
             .leaf = names_.of(node.zone() + "\n" + node.leaf())};
    for (const std::string& mark : node.marks()) one.marks.push_back(names_.of(mark));
    std::ranges::sort(one.marks);
    one.usable = is_usable(name, now);
    places[name] = static_cast<uint32_t>(nodes.size());
    nodes.push_back(name);
    picture.nodes.push_back(std::move(one));
  }
  std::set<uint32_t> users, groups;
  for (const uint64_t id : open_) {
    const wire::Task& task = tasks_.at(id);
    if (phase_of(task) == TaskPhase::suspended) continue;
    const wire::Spec& spec = task.spec();
    Gang gang{.order = id, .user = names_.of(task.owner().name())};
    gang.demand = {.nodes = spec.nodes(), .group = names_.of(spec.group())};
    if (!spec.zone().empty()) gang.demand.zone = names_.of(spec.zone());
    for (const std::string& mark : spec.marks()) gang.demand.marks.push_back(names_.of(mark));
    std::ranges::sort(gang.demand.marks);
    gang.level = spec.has_priority() ? level_of(spec.priority()) : std::nullopt;
    gang.limit_ns = spec.limit();
    gang.min_run_ns = spec.min_run();
    if (const auto ready = ready_ns_.find(id); ready != ready_ns_.end()) {
      gang.ready_ns = ready->second;
    }
    const auto live = live_.find(id);
    if (live != live_.end()) {
      const wire::Attempt& tried = attempt(task);
      gang.phase = phase_of(task) == TaskPhase::stopping ? Phase::stopping : Phase::running;
      gang.charged = static_cast<Level>(tried.level());
      gang.started_ns = live->second.placed_ns;
      gang.saved_ns = std::max(live->second.saved_ns, live->second.placed_ns);
      for (const std::string& name : tried.nodes()) {
        const uint32_t node = places.at(name);
        gang.nodes.push_back(node);
        picture.nodes[node].task = static_cast<uint32_t>(tasks.size());
      }
    }
    users.insert(gang.user);
    groups.insert(gang.demand.group);
    tasks.push_back(id);
    picture.tasks.push_back(std::move(gang));
  }
  // One's own quota counts, else that of all.
  for (const auto& [key, quota] : quotas_) {
    const uint32_t group = names_.of(quota.group());
    const Level level = *level_of(quota.priority());
    if (quota.user() != "*") {
      picture.quotas.set(names_.of(quota.user()), group, level, quota.nodes());
      continue;
    }
    for (const uint32_t user : users) {
      wire::Quota own = quota;
      own.set_user(names_.text(user));
      if (!quotas_.contains(quota_key(own))) picture.quotas.set(user, group, level, quota.nodes());
    }
  }
  return picture;
}

void Book::decide_now(Now now) {
  decided_ns_ = now.steady_ns;
  std::vector<uint64_t> tasks;
  std::vector<std::string> nodes;
  const Decision decision = decide(picture(now, tasks, nodes), now.steady_ns);
  waits_.clear();
  look_ns_ = kNever;
  std::erase_if(ready_ns_, [&](const auto& one) { return one.second <= now.steady_ns; });
  for (const auto& [id, ready_ns] : ready_ns_) look_ns_ = std::min(look_ns_, ready_ns);
  for (const Wait& wait : decision.waits) {
    wire::Waiting& waiting = waits_[tasks[wait.task]];
    waiting.set_why(static_cast<uint32_t>(wait.why));
    if (wait.other != kNobody) waiting.set_other(tasks[wait.other]);
    if (wait.expected_ns != kNever) {
      waiting.set_expected(now.wall_ns + wait.expected_ns - now.steady_ns);
      // Somebody's minimum run time ends, or its time is over.
      if (wait.expected_ns > now.steady_ns) look_ns_ = std::min(look_ns_, wait.expected_ns);
    }
    waiting.set_missing(wait.missing);
    if (wait.why == Why::nodes_out) {
      waiting.set_validating(validating_for(tasks_.at(tasks[wait.task]).spec()));
    }
  }
  for (const Interrupt& one : decision.interrupts) {
    wire::Task& task = tasks_.at(tasks[one.task]);
    ask_to_stop(task, StopWhy::preempted, fmt::format("for task {}", tasks[one.for_task]), now);
    attempt(task).set_stop_for(tasks[one.for_task]);
  }
  for (const Start& start : decision.starts) place(tasks_.at(tasks[start.task]), start, nodes, now);
  undecided_ = false;  // what it has changed itself it knows of
}

void Book::place(wire::Task& task, const Start& start, const std::vector<std::string>& nodes,
                 Now now) {
  FF_CHECK(phase_of(task) == TaskPhase::queued);
  task.set_attempts_made(task.attempts_made() + 1);
  wire::Attempt& tried = *task.add_attempts();
  tried.set_number(task.attempts_made());
  tried.set_level(start.level);
  tried.set_placed(now.wall_ns);
  tried.set_nodes_count(static_cast<uint32_t>(start.nodes.size()));
  Live& live = live_[task.id()];
  live = {};
  live.placed_ns = now.steady_ns;
  for (const uint32_t node : start.nodes) {
    tried.add_nodes(nodes[node]);
    live.parts[nodes[node]] = {};
    Seen& seen = seen_.at(nodes[node]);
    FF_CHECK(seen.task == 0);
    seen.task = task.id();
  }
  task.set_phase(static_cast<uint32_t>(TaskPhase::preparing));
  change(task);
  order(task);
}

// The newest id stays: no other task gets it.
void Book::drop_old() {
  for (auto oldest = finished_.begin(); finished_.size() > timing_.finished_most;) {
    if (oldest->second + 1 == next_id_) {
      if (++oldest == finished_.end()) return;
      continue;
    }
    changed_.tasks.erase(oldest->second);
    changed_.dropped.insert(*oldest);
    tasks_.erase(oldest->second);
    oldest = finished_.erase(oldest);
  }
}

int64_t Book::tick(Now now) {
  drop_old();
  std::vector<uint64_t> with_nodes;
  for (const auto& [id, live] : live_) with_nodes.push_back(id);
  for (const uint64_t id : with_nodes) advance(tasks_.at(id), now);
  int64_t next_ns = kNever;
  for (const auto& [name, seen] : seen_) {
    // A node falls silent without a word.
    const int64_t falls_ns = seen.heard_ns + quiet_ns();
    if (!seen.heard) continue;
    if (falls_ns > now.steady_ns) {
      next_ns = std::min(next_ns, falls_ns);
    } else if (falls_ns > decided_ns_) {
      undecided_ = true;
    }
  }
  if (undecided_ || look_ns_ <= now.steady_ns) decide_now(now);
  next_ns = std::min({next_ns, look_ns_, look_after(now)});
  for (const auto& [id, live] : live_) {
    next_ns = std::min(next_ns, next_deadline(tasks_.at(id), live));
  }
  return next_ns;
}

std::vector<wire::Order> Book::orders(const std::string& name) const {
  std::vector<wire::Order> orders;
  const auto seen = seen_.find(name);
  if (seen == seen_.end()) return orders;
  for (const auto& [stray, lives] : seen->second.strays) {
    wire::Order& order = orders.emplace_back();
    order.set_task(stray.first);
    order.set_attempt(stray.second);
    order.set_action(static_cast<uint32_t>(lives ? Action::kill : Action::forget));
  }
  const auto found = live_.find(seen->second.task);
  if (seen->second.task == 0 || found == live_.end()) return orders;
  const wire::Task& task = tasks_.at(seen->second.task);
  const Live& live = found->second;
  const wire::Attempt& tried = attempt(task);
  wire::Order& order = orders.emplace_back();
  order.set_task(task.id());
  order.set_attempt(tried.number());
  *order.mutable_owner() = task.owner();
  *order.mutable_spec() = task.spec();
  const auto place = std::ranges::find(tried.nodes(), name);
  order.set_node_rank(static_cast<uint32_t>(place - tried.nodes().begin()));
  order.set_first_address(nodes_.at(tried.nodes(0)).address());
  order.set_port(tried.port());
  order.set_life_state(task.life_state());
  Action action = Action::prepare;
  if (phase_of(task) == TaskPhase::running) action = Action::run;
  if (phase_of(task) == TaskPhase::stopping) {
    action = live.killed_ns != 0       ? Action::kill
             : live.terminated_ns != 0 ? Action::terminate
                                       : Action::ask;
    order.set_stop_why(std::string(stop_name(static_cast<StopWhy>(tried.stop()))));
    order.set_stop_by(tried.asked() + timing_.ack_ns + timing_.save_ns);
  }
  order.set_action(static_cast<uint32_t>(action));
  return orders;
}

Book::Changed Book::take_changed() { return std::exchange(changed_, {}); }
std::set<std::string> Book::take_ordered() { return std::exchange(ordered_, {}); }

const wire::Task* Book::task(uint64_t id) const {
  const auto found = tasks_.find(id);
  return found == tasks_.end() ? nullptr : &found->second;
}

const wire::Node* Book::node(const std::string& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::vector<wire::ListedNode> Book::listed_nodes(Now now) const {
  std::vector<wire::ListedNode> listed;
  for (const auto& [name, node] : nodes_) {
    wire::ListedNode& one = listed.emplace_back();
    *one.mutable_node() = node;
    const auto seen = seen_.find(name);
    const bool heard = seen != seen_.end() && seen->second.heard;
    one.set_heard(heard ? now.steady_ns - seen->second.heard_ns : -1);
    one.set_task(seen != seen_.end() ? seen->second.task : 0);
    one.set_usable(is_usable(name, now));
    one.set_validating(is_validating(name));
  }
  return listed;
}

std::optional<wire::Waiting> Book::waiting(uint64_t task) const {
  const auto found = waits_.find(task);
  if (found == waits_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ff::scheduler
