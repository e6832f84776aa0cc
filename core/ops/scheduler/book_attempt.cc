// book_attempt.cc: an attempt, from its nodes' making ready to the last of them having ended it.
#include <sys/wait.h>

#include <algorithm>

#include "ops/scheduler/book.h"
#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

// Of a rank that has failed: the others have so long to end by themselves before SIGTERM.
constexpr int64_t kOthersNs = 5 * kSecond;
constexpr int kAttemptsKept = 20;
constexpr int kOldNodesKept = 64;  // names, of an attempt that is over

void set_phase(wire::Task& task, TaskPhase phase) { task.set_phase(static_cast<uint32_t>(phase)); }

std::string how_it_ended(uint32_t rank, int32_t status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status));
  }
  return fmt::format("rank {} has ended with {}", rank, WEXITSTATUS(status));
}

}  // namespace

// Silent so long that no rank can be left: they are killed when the lease is over, and that takes
// no longer than a stop does.
bool Book::is_over(const std::string& node, Now now) const {
  const auto seen = seen_.find(node);
  FF_CHECK(seen != seen_.end());
  return now.steady_ns - seen->second.heard_ns >= timing_.lease_ns + timing_.term_ns;
}

bool Book::all_ended(const wire::Task& task, Now now) const {
  return std::ranges::all_of(live_.at(task.id()).parts, [&](const auto& part) {
    return part.second.state == Part::State::ended || is_over(part.first, now);
  });
}

// The first rank that did not end well, and how it did.
std::optional<std::pair<uint32_t, int32_t>> Book::failed_rank(const wire::Task& task) const {
  const Live& live = live_.at(task.id());
  const wire::Attempt& tried = attempt(task);
  for (int node = 0; node < tried.nodes_size(); node++) {
    for (const auto& [local, status] : live.parts.at(tried.nodes(node)).statuses) {
      const uint32_t rank = static_cast<uint32_t>(node) * task.spec().processes() + local;
      if (status != 0) return std::pair(rank, status);
    }
  }
  return std::nullopt;
}

std::string Book::how_it_hangs(const wire::Task& task, Now now) const {
  const Live& live = live_.at(task.id());
  const int64_t most_ns = task.spec().hang();
  if (most_ns == 0 || now.steady_ns - live.started_ns < most_ns) return {};
  const wire::Attempt& tried = attempt(task);
  int64_t silent_ns = INT64_MAX, first_ns = -1;
  std::string first;
  for (int node = 0; node < tried.nodes_size(); node++) {
    const Part& part = live.parts.at(tried.nodes(node));
    silent_ns = std::min(silent_ns, part.silent_ns);
    if (part.quietest.silent_ns <= first_ns) continue;
    first_ns = part.quietest.silent_ns;
    first = fmt::format("rank {} on node {} was the first to fall silent{}",
                        static_cast<uint32_t>(node) * task.spec().processes() + part.quietest.local,
                        tried.nodes(node),
                        part.quietest.step ? fmt::format(", at step {}", *part.quietest.step) : "");
  }
  if (silent_ns == INT64_MAX || silent_ns < most_ns) return {};
  return fmt::format("no rank has printed or told a step for {}; {}", format_duration(silent_ns),
                     first);
}

void Book::advance(wire::Task& task, Now now) {
  const TaskPhase phase = phase_of(task);
  if (phase == TaskPhase::preparing) advance_preparing(task, now);
  if (phase == TaskPhase::running) advance_running(task, now);
  if (phase_of(task) == TaskPhase::stopping) advance_stopping(task, now);
}

void Book::advance_preparing(wire::Task& task, Now now) {
  Live& live = live_.at(task.id());
  wire::Attempt& tried = attempt(task);
  bool ready = tried.port() != 0;
  std::string_view slow = tried.nodes(0);
  for (const auto& [node, part] : live.parts) {
    if (!part.text.empty()) {
      return ask_to_stop(task, StopWhy::unprepared, node + ": " + part.text, now);
    }
    if (is_over(node, now)) {
      return ask_to_stop(task, StopWhy::node_lost, "node " + node + " is silent", now);
    }
    if (part.state == Part::State::prepared) continue;
    ready = false;
    slow = node;
  }
  if (ready) {
    tried.set_started(now.wall_ns);
    live.started_ns = live.saved_ns = now.steady_ns;
    if (task.waited() == 0) task.set_waited(std::max<int64_t>(1, now.wall_ns - task.submitted()));
    set_phase(task, TaskPhase::running);
    change(task);
    return order(task);
  }
  if (now.steady_ns - live.placed_ns < timing_.prepare_ns) return;
  ask_to_stop(task, StopWhy::node_lost, fmt::format("node {} did not make ready in time", slow),
              now);
}

void Book::advance_running(wire::Task& task, Now now) {
  Live& live = live_.at(task.id());
  wire::Attempt& tried = attempt(task);
  for (const auto& [node, part] : live.parts) {
    if (!part.has_lost) continue;
    return ask_to_stop(task, StopWhy::node_lost,
                       fmt::format("node {} has lost a rank: {}", node, part.text), now);
  }
  if (const auto failed = failed_rank(task)) {
    tried.set_status_rank(failed->first);
    tried.set_status(failed->second);
    const uint32_t asks = task.spec().restart_on();
    const bool is_asking = asks != 0 && WIFEXITED(failed->second) &&
                           static_cast<uint32_t>(WEXITSTATUS(failed->second)) == asks;
    return ask_to_stop(task, is_asking ? StopWhy::restart : StopWhy::failed,
                       how_it_ended(failed->first, failed->second), now);
  }
  for (const auto& [node, part] : live.parts) {
    if (is_over(node, now)) {
      return ask_to_stop(task, StopWhy::node_lost, "node " + node + " is silent", now);
    }
  }
  if (all_ended(task, now)) return end_attempt(task, now);
  if (task.spec().limit() > 0 && now.steady_ns - live.started_ns >= task.spec().limit()) {
    return ask_to_stop(task, StopWhy::limit, "its time is over", now);
  }
  if (auto how = how_it_hangs(task, now); !how.empty()) {
    ask_to_stop(task, StopWhy::hang, std::move(how), now);
  }
}

// A task is asked once; a later reason changes nothing, but that a failure needs no answer.
void Book::ask_to_stop(wire::Task& task, StopWhy why, std::string text, Now now) {
  if (phase_of(task) == TaskPhase::stopping) return;
  wire::Attempt& tried = attempt(task);
  Live& live = live_.at(task.id());
  tried.set_stop(static_cast<uint32_t>(why));
  tried.set_stop_text(std::move(text));
  tried.set_asked(now.wall_ns);
  live.asked_ns = now.steady_ns;
  if (phase_of(task) == TaskPhase::preparing) {
    // Nothing of it runs, or it was told to a moment ago and has done nothing yet.
    live.terminated_ns = now.steady_ns;
    tried.set_terminated(now.wall_ns);
  }
  set_phase(task, TaskPhase::stopping);
  change(task);
  order(task);
}

// A failure, and a task that hangs, need no answer.
int64_t Book::terminates_ns(const wire::Attempt& tried, const Live& live) const {
  const StopWhy why = why_of(tried);
  if (why == StopWhy::failed || why == StopWhy::hang || why == StopWhy::restart) {
    return live.asked_ns + kOthersNs;
  }
  return live.acked_ns != 0 ? live.acked_ns + timing_.save_ns : live.asked_ns + timing_.ack_ns;
}

void Book::advance_stopping(wire::Task& task, Now now) {
  Live& live = live_.at(task.id());
  wire::Attempt& tried = attempt(task);
  if (all_ended(task, now)) return end_attempt(task, now);
  if (live.terminated_ns == 0 && now.steady_ns >= terminates_ns(tried, live)) {
    live.terminated_ns = now.steady_ns;
    tried.set_terminated(now.wall_ns);
    change(task);
    order(task);
  }
  if (live.terminated_ns != 0 && live.killed_ns == 0 &&
      now.steady_ns - live.terminated_ns >= timing_.term_ns) {
    live.killed_ns = now.steady_ns;
    tried.set_killed(now.wall_ns);
    change(task);
    order(task);
  }
}

// Nothing of it is left anywhere.
void Book::end_attempt(wire::Task& task, Now now) {
  wire::Attempt& tried = attempt(task);
  const Live live = std::move(live_.extract(task.id()).mapped());
  const auto nodes = static_cast<int64_t>(tried.nodes_size());
  tried.set_ended(now.wall_ns);
  order(task);
  for (const std::string& node : tried.nodes()) seen_[node].task = 0;
  const bool ran = tried.started() != 0;
  bool all_well = ran;
  for (const auto& [node, part] : live.parts) {
    all_well = all_well && part.statuses.size() == task.spec().processes() &&
               std::ranges::all_of(part.statuses, [](const auto& one) { return one.second == 0; });
  }
  if (ran) {
    task.set_used(task.used() + nodes * (now.steady_ns - live.started_ns));
    // What came after the last save has to be done again, unless this was the end.
    const int64_t until_ns = live.asked_ns != 0 ? live.asked_ns : now.steady_ns;
    if (!all_well || live.acked_ns != 0) {
      task.set_lost(task.lost() + nodes * std::max<int64_t>(0, until_ns - live.saved_ns));
    }
  }
  const StopWhy why = why_of(tried);
  change(task);
  // Who has ended well and was not saving for somebody has done its work.
  if (all_well && live.acked_ns == 0) return finish(task, Outcome::succeeded, {}, now);
  const std::string text = tried.stop_text();
  switch (why) {
    case StopWhy::stopped: return finish(task, Outcome::stopped, "stopped by its user", now);
    case StopWhy::limit: return finish(task, Outcome::stopped, text, now);
    case StopWhy::suspended: set_phase(task, TaskPhase::suspended); return;
    case StopWhy::preempted:
    case StopWhy::drained: return queue_again(task, 0, now);
    // At a bounded rate, where it is so again and again.
    case StopWhy::restart:
    case StopWhy::node_lost: return queue_again(task, timing_.pause_ns, now);
    case StopWhy::unprepared:
    case StopWhy::hang:
    case StopWhy::failed:
    case StopWhy::none: break;
  }
  task.set_failures(task.failures() + 1);
  if (task.failures() > task.spec().restarts()) return finish(task, Outcome::failed, text, now);
  queue_again(task, timing_.pause_ns, now);
}

void Book::finish(wire::Task& task, Outcome outcome, std::string text, Now now) {
  set_phase(task, TaskPhase::finished);
  task.set_outcome(static_cast<uint32_t>(outcome));
  task.set_outcome_text(std::move(text));
  task.set_finished(now.wall_ns);
  open_.erase(task.id());
  open_of_[task.owner().uid()]--;
  once_.erase(task.once());
  waits_.erase(task.id());
  ready_ns_.erase(task.id());
  finished_.emplace(task.finished(), task.id());
  change(task);
}

void Book::queue_again(wire::Task& task, int64_t pause_ns, Now now) {
  set_phase(task, TaskPhase::queued);
  task.set_not_before(pause_ns == 0 ? 0 : now.wall_ns + pause_ns);
  if (pause_ns > 0) ready_ns_[task.id()] = now.steady_ns + pause_ns;
  if (task.attempts_size() > 0) {
    auto& nodes = *attempt(task).mutable_nodes();
    if (nodes.size() > kOldNodesKept)
      nodes.DeleteSubrange(kOldNodesKept, nodes.size() - kOldNodesKept);
  }
  while (task.attempts_size() > kAttemptsKept) task.mutable_attempts()->DeleteSubrange(0, 1);
  change(task);
}

int64_t Book::next_deadline(const wire::Task& task, const Live& live) const {
  const wire::Attempt& tried = attempt(task);
  int64_t next_ns = kNever;
  const auto at = [&](int64_t time_ns) { next_ns = std::min(next_ns, time_ns); };
  switch (phase_of(task)) {
    case TaskPhase::preparing: at(live.placed_ns + timing_.prepare_ns); break;
    case TaskPhase::running:
      if (task.spec().limit() > 0) at(live.started_ns + task.spec().limit());
      if (task.spec().hang() > 0) at(live.started_ns + task.spec().hang());
      break;
    case TaskPhase::stopping:
      if (live.terminated_ns == 0) {
        at(terminates_ns(tried, live));
      } else if (live.killed_ns == 0) {
        at(live.terminated_ns + timing_.term_ns);
      }
      break;
    case TaskPhase::queued:
    case TaskPhase::suspended:
    case TaskPhase::finished: break;
  }
  for (const auto& [node, part] : live.parts) {
    if (part.state != Part::State::ended) {
      at(seen_.at(node).heard_ns + timing_.lease_ns + timing_.term_ns);
    }
  }
  return next_ns;
}

}  // namespace ff::scheduler
