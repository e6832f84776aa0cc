// book.cc: what users ask for and agents tell.
#include "ops/scheduler/book.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::scheduler {

namespace {

constexpr std::array<std::string_view, 6> kPhases = {"queued",   "preparing", "running",
                                                     "stopping", "suspended", "finished"};
constexpr std::array<std::string_view, 4> kOutcomes = {"none", "succeeded", "failed", "stopped"};
constexpr std::array<std::string_view, 11> kStops = {
    "none",      "preempted", "stopped", "suspended",  "limit",  "drained",
    "node_lost", "hang",      "failed",  "unprepared", "restart"};

constexpr size_t kNameMax = 200;
constexpr size_t kWordsBytesMax = 256 * 1024;  // of argv and env together
constexpr uint32_t kBookNodesMax = 100'000;
constexpr uint32_t kProcessesMax = 1024;
constexpr size_t kUnfinishedMax = 10'000;  // of a user

bool has_zero(const std::string& text) { return text.find('\0') != text.npos; }

// What a program can be started with, and a log can hold.
Result<void> check_spec(const wire::Spec& spec) {
  if (spec.argv().empty() || spec.argv(0).empty()) {
    return fail(Errc::usage, "a task has a command");
  }
  size_t bytes = 0;
  for (const auto* words : {&spec.argv(), &spec.env()}) {
    for (const std::string& word : *words) {
      bytes += word.size() + 1;
      if (has_zero(word)) return fail(Errc::usage, "a word of the command has a zero byte in it");
    }
  }
  if (bytes > kWordsBytesMax) {
    return fail(Errc::usage, "the command and its environment have {} bytes, at most {}", bytes,
                kWordsBytesMax);
  }
  for (const std::string& one : spec.env()) {
    if (one.find('=') == 0 || one.find('=') == one.npos) {
      return fail(Errc::usage, "'{}' is not NAME=VALUE", printable(one));
    }
  }
  if (spec.name().size() > kNameMax || has_zero(spec.name())) {
    return fail(Errc::usage, "a task's name has at most {} bytes", kNameMax);
  }
  if (!spec.cwd().starts_with('/') || has_zero(spec.cwd())) {
    return fail(Errc::usage, "the folder '{}' is not absolute", printable(spec.cwd()));
  }
  if (spec.nodes() == 0 || spec.nodes() > kBookNodesMax) {
    return fail(Errc::usage, "{} nodes: between 1 and {}", spec.nodes(), kBookNodesMax);
  }
  if (spec.processes() == 0 || spec.processes() > kProcessesMax) {
    return fail(Errc::usage, "{} processes of a node: between 1 and {}", spec.processes(),
                kProcessesMax);
  }
  if (spec.has_priority() && !level_of(spec.priority())) {
    return fail(Errc::usage, "priority {}: 50, 40, 30, 20, 10 or 0", spec.priority());
  }
  if (spec.limit() < 0 || spec.min_run() < 0 || spec.hang() < 0 || spec.signal() > 64) {
    return fail(Errc::usage, "a time below zero, or a signal that there is none of");
  }
  return {};
}

}  // namespace

std::string_view phase_name(TaskPhase phase) { return kPhases.at(static_cast<size_t>(phase)); }
std::string_view outcome_name(Outcome outcome) {
  return kOutcomes.at(static_cast<size_t>(outcome));
}
std::string_view stop_name(StopWhy why) { return kStops.at(static_cast<size_t>(why)); }

Book::Book(std::string id, Timing timing, Health health)
    : id_(std::move(id)), timing_(timing), health_(health) {}

bool Book::has_nodes(const wire::Task& task) {
  const TaskPhase phase = phase_of(task);
  return phase == TaskPhase::preparing || phase == TaskPhase::running ||
         phase == TaskPhase::stopping;
}

void Book::open(const wire::Task& task) {
  open_.insert(task.id());
  open_of_[task.owner().uid()]++;
  if (!task.once().empty()) once_[task.once()] = task.id();
}

void Book::load(wire::Task task) {
  next_id_ = std::max(next_id_, task.id() + 1);
  const uint64_t id = task.id();
  if (phase_of(task) != TaskPhase::finished) {
    open(task);
  } else {
    finished_.emplace(task.finished(), id);
  }
  tasks_[id] = std::move(task);
}

void Book::load(wire::Node node) {
  const std::string name = node.name();
  nodes_[name] = std::move(node);
}

void Book::load(wire::Quota quota) {
  const std::string key = quota_key(quota);
  quotas_[key] = std::move(quota);
}

void Book::begin(Now now) {
  for (const auto& [name, node] : nodes_) seen_[name].heard_ns = now.steady_ns;
  for (const uint64_t id : open_) {
    wire::Task& task = tasks_.at(id);
    if (const int64_t pause_ns = task.not_before() - now.wall_ns; pause_ns > 0) {
      ready_ns_[id] = now.steady_ns + std::min(pause_ns, timing_.pause_ns);
    }
    if (!has_nodes(task)) continue;
    const wire::Attempt& tried = attempt(task);
    // The clock may have been set meanwhile: nothing was in the future.
    const auto ago = [&](int64_t wall_ns) {
      return wall_ns == 0 ? 0 : now.steady_ns - std::max<int64_t>(0, now.wall_ns - wall_ns);
    };
    Live live{.parts = {},
              .placed_ns = ago(tried.placed()),
              .started_ns = ago(tried.started()),
              .saved_ns = ago(std::max(tried.saved(), tried.started())),
              .asked_ns = ago(tried.asked()),
              .acked_ns = ago(tried.acked()),
              .terminated_ns = ago(tried.terminated()),
              .killed_ns = ago(tried.killed())};
    for (const std::string& node : tried.nodes()) {
      live.parts[node] = {};
      seen_[node].task = id;
    }
    live_[id] = std::move(live);
  }
  undecided_ = true;
}

void Book::change(wire::Task& task) {
  changed_.tasks.insert(task.id());
  undecided_ = true;
}

void Book::order(const wire::Task& task) {
  for (const std::string& node : attempt(task).nodes()) ordered_.insert(node);
}

Result<uint64_t> Book::submit(wire::SubmitRequest request, Now now) {
  const wire::Owner& owner = request.owner();
  FF_TRY(check_spec(request.spec()));
  if (request.once().size() > kNameMax) return fail(Errc::usage, "a mark of so many bytes");
  if (const auto same = once_.find(request.once()); same != once_.end()) return same->second;
  if (open_of_[owner.uid()] >= kUnfinishedMax) {
    return fail(Errc::busy, "{} has {} tasks that are not finished", printable(owner.name()),
                kUnfinishedMax);
  }
  const uint64_t id = next_id_++;
  wire::Task& task = tasks_[id];
  task.set_id(id);
  *task.mutable_owner() = std::move(*request.mutable_owner());
  *task.mutable_spec() = std::move(*request.mutable_spec());
  task.set_once(request.once());
  task.set_submitted(now.wall_ns);
  open(task);
  change(task);
  return id;
}

Result<void> Book::control(uint64_t id, Control what, Now now) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return fail(Errc::not_found, "there is no task {}", id);
  wire::Task& task = found->second;
  const TaskPhase phase = phase_of(task);
  const auto refused = [&] { return fail(Errc::refused, "task {} is {}", id, phase_name(phase)); };
  if (phase == TaskPhase::finished) return refused();
  if (what == Control::resume) {
    if (phase != TaskPhase::suspended) return refused();
    queue_again(task, 0, now);
    return {};
  }
  if (has_nodes(task)) {
    const StopWhy why = what == Control::stop ? StopWhy::stopped : StopWhy::suspended;
    ask_to_stop(task, why, {}, now);
    // It was on its way out for somebody else already: then its user's wish counts in the end.
    if (attempt(task).stop() != static_cast<uint32_t>(StopWhy::stopped)) {
      attempt(task).set_stop(static_cast<uint32_t>(why));
      change(task);
    }
    return {};
  }
  if (what == Control::stop) {
    finish(task, Outcome::stopped, "stopped before it ran", now);
  } else {
    if (phase == TaskPhase::suspended) return refused();
    task.set_phase(static_cast<uint32_t>(TaskPhase::suspended));
    change(task);
  }
  return {};
}

Result<void> Book::drain(const std::string& name, bool drained, std::string why, Now now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) {
    return fail(Errc::not_found, "there is no node {}", printable(name));
  }
  found->second.set_drained(drained);
  found->second.set_drained_why(drained ? why : std::string());
  // Who returns it by hand knows better than the last verdict.
  if (!drained) {
    found->second.set_drained_by_verdict(false);
    found->second.clear_failed();
  }
  changed_.nodes.insert(name);
  undecided_ = true;
  const uint64_t id = seen_[name].task;
  if (drained && id != 0) {
    ask_to_stop(tasks_.at(id), StopWhy::drained, "node " + name + " is taken out of service", now);
  }
  return {};
}

std::string Book::quota_key(const wire::Quota& quota) {
  return fmt::format("{}\n{}\n{}", quota.user(), quota.group(), quota.priority());
}

Result<void> Book::set_quota(const wire::Quota& quota) {
  const auto fits = [](const std::string& word) {
    return !word.empty() && word.size() <= kNameMax && word.find('\n') == word.npos;
  };
  if (!fits(quota.user()) || !fits(quota.group()) || !level_of(quota.priority())) {
    return fail(Errc::usage, "a quota needs a user, a partition and a priority");
  }
  const std::string key = quota_key(quota);
  quotas_[key] = quota;
  changed_.quotas.insert(key);
  undecided_ = true;
  return {};
}

void Book::drop_quota(const wire::Quota& quota) {
  const std::string key = quota_key(quota);
  if (quotas_.erase(key) == 0) return;
  changed_.quotas.insert(key);
  undecided_ = true;
}

Result<void> Book::report(const wire::SyncRequest& request, Now now) {
  const wire::Node& told = request.node();
  if (told.name().empty() || told.name().size() > kNameMax || told.group().empty()) {
    return fail(Errc::usage, "a node needs a name and a partition");
  }
  if (!request.scheduler().empty() && request.scheduler() != id_) {
    return fail(Errc::refused, "node {} has tasks of another scheduler", printable(told.name()));
  }
  wire::Node& node = nodes_[told.name()];
  wire::Node after = told;
  keep_health(node, after);
  std::ranges::sort(*after.mutable_marks());
  if (after.SerializeAsString() != node.SerializeAsString()) {
    node = std::move(after);
    changed_.nodes.insert(told.name());
    undecided_ = true;
  }
  const bool was_usable = is_usable(told.name(), now);
  Seen& seen = seen_[told.name()];
  hear_checks(request, now);
  seen.heard = true;
  seen.heard_ns = now.steady_ns;
  seen.boot = request.boot();
  seen.strays.clear();
  std::set<uint64_t> held;
  for (const wire::Held& one : request.held()) {
    hear(one, told.name(), now);
    held.insert(one.task());
  }
  // What it was to have and does not: it never began it, or the node has started anew.
  const auto found = live_.find(seen.task);
  if (seen.task != 0 && found != live_.end() && !held.contains(seen.task)) {
    Part& part = found->second.parts[told.name()];
    wire::Task& task = tasks_.at(seen.task);
    const bool had = part.state == Part::State::living || part.state == Part::State::prepared;
    // It runs only where all had made ready.
    if (had || phase_of(task) == TaskPhase::running) {
      part.state = Part::State::ended;
      part.text = "node " + told.name() + " has lost it";
      ask_to_stop(task, StopWhy::node_lost, part.text, now);
    } else if (phase_of(task) == TaskPhase::stopping) {
      part.state = Part::State::ended;
    }
  }
  if (seen.task != 0) advance(tasks_.at(seen.task), now);
  if (is_usable(told.name(), now) != was_usable) undecided_ = true;
  return {};
}

void Book::hear(const wire::Held& held, const std::string& node, Now now) {
  const auto found = tasks_.find(held.task());
  const bool is_present = found != tasks_.end() && has_nodes(found->second) &&
                          attempt(found->second).number() == held.attempt() &&
                          live_.at(held.task()).parts.contains(node);
  if (!is_present) {
    const bool lives = std::ranges::any_of(held.ranks(), [](const wire::Rank& rank) {
      return rank.state() == static_cast<uint32_t>(RankState::running);
    });
    seen_[node].strays[{held.task(), held.attempt()}] = lives;
    return;
  }
  hear_part(found->second, held, node, now);
}

void Book::hear_part(wire::Task& task, const wire::Held& held, const std::string& node, Now now) {
  Live& live = live_.at(task.id());
  Part& part = live.parts.at(node);
  wire::Attempt& tried = attempt(task);
  part.text = held.text();
  part.statuses.clear();
  part.has_lost = false;
  part.silent_ns = INT64_MAX;
  part.quietest = {};
  bool lives = false;
  for (const wire::Rank& rank : held.ranks()) {
    const auto state = static_cast<RankState>(rank.state());
    if (state == RankState::running) {
      lives = true;
      part.silent_ns = std::min(part.silent_ns, rank.silent());
      if (rank.silent() > part.quietest.silent_ns) {
        part.quietest = {.local = rank.local(), .silent_ns = rank.silent(), .step = {}};
        if (rank.has_step()) part.quietest.step = rank.step();
      }
    } else if (state != RankState::waiting) {
      // A rank that nobody saw the end of has not ended well.
      part.statuses[rank.local()] = state == RankState::lost ? SIGKILL : rank.status();
      part.has_lost = part.has_lost || state == RankState::lost;
      if (!rank.text().empty()) part.text = rank.text();
    }
  }
  const bool all_ended =
      !held.ranks().empty() && part.statuses.size() == static_cast<size_t>(held.ranks_size());
  part.state = lives             ? Part::State::living
               : all_ended       ? Part::State::ended
               : held.prepared() ? Part::State::prepared
                                 : Part::State::waiting;
  if (held.port() != 0 && tried.nodes(0) == node && tried.port() != held.port()) {
    tried.set_port(held.port());
    change(task);
  }
  if (held.acked() && live.asked_ns != 0 && live.acked_ns == 0) {
    live.acked_ns = now.steady_ns;
    tried.set_acked(now.wall_ns);
    change(task);
  }
  if (held.has_saved_step() &&
      (!tried.has_saved_step() || held.saved_step() != tried.saved_step())) {
    tried.set_saved_step(held.saved_step());
    tried.set_saved(now.wall_ns);
    live.saved_ns = now.steady_ns;
    change(task);
  }
  if (held.has_life_state() && held.life_state() != task.life_state()) {
    task.set_life_state(held.life_state());
    change(task);
  }
}

}  // namespace ff::scheduler
