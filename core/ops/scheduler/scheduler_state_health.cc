// scheduler_state_health.cc: verdicts of ff validate and their effect on nodes, and validation of
// idle nodes.
#include <algorithm>

#include "ops/scheduler/scheduler_state.h"
#include "ops/validate/check.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

constexpr int64_t kRecheckNs = 24 * 3600 * kSecond;
constexpr size_t kRunningPercent = 2;  // of all nodes, validating at once; at least one
constexpr int kCheckNamesMax = 1000;
constexpr int kNamesShown = 4;
constexpr size_t kCheckNameBytesMax = 100;
constexpr size_t kVerdictTextBytesMax = 300;

size_t share_of(size_t nodes, size_t percent) { return std::max<size_t>(1, nodes * percent / 100); }

validate::Verdict worst_of(const wire::Verdict& verdict) {
  return static_cast<validate::Verdict>(verdict.verdict());
}

Result<void> check_verdict(const wire::Verdict& verdict) {
  if (verdict.verdict() < static_cast<uint32_t>(validate::Verdict::pass) ||
      verdict.verdict() > static_cast<uint32_t>(validate::Verdict::fail)) {
    return fail(Errc::usage, "unknown verdict");
  }
  for (const auto* names : {&verdict.failed(), &verdict.checks()}) {
    const bool fits = std::ranges::all_of(*names, [](const std::string& name) {
      return !name.empty() && name.size() <= kCheckNameBytesMax;
    });
    if (!fits || names->size() > kCheckNamesMax)
      return fail(Errc::usage, "invalid names of checks");
  }
  const bool is_bad = worst_of(verdict) >= validate::Verdict::degraded;
  if (is_bad && verdict.failed().empty())
    return fail(Errc::usage, "the verdict names no failed check");
  return {};
}

// "pci.link, log.xid and 3 more".
std::string text_of(const wire::Verdict& verdict) {
  std::string text = verdict.text().substr(0, kVerdictTextBytesMax);
  if (!text.empty()) return text;
  for (int i = 0; i < std::min(verdict.failed_size(), kNamesShown); i++) {
    text += (i > 0 ? ", " : "") + verdict.failed(i);
  }
  const int more = verdict.failed_size() - kNamesShown;
  return more > 0 ? text + fmt::format(" and {} more", more) : text;
}

wire::Verdict could_not_run(std::string why) {
  wire::Verdict verdict;
  verdict.set_verdict(static_cast<uint32_t>(validate::Verdict::could_not_run));
  verdict.set_text(std::move(why));
  return verdict;
}

template <class NameList>
bool has(const NameList& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a task with this spec may use the node.
bool fits(const wire::Node& node, const wire::Spec& spec) {
  return node.group() == spec.group() && (spec.zone().empty() || node.zone() == spec.zone()) &&
         std::ranges::all_of(spec.marks(),
                             [&](const std::string& label) { return has(node.marks(), label); });
}

}  // namespace

bool is_used_despite_verdict(const wire::Node& node) {
  return node.verdict() >= static_cast<uint32_t>(validate::Verdict::degraded) && !node.drained() &&
         !node.drained_by_verdict();
}

// Its agent reports, and no rank is left on it.
bool SchedulerState::is_present(const std::string& name, Now now) const {
  const auto runtime = node_runtimes_.find(name);
  if (runtime == node_runtimes_.end() || !runtime->second.reported) return false;
  const bool has_orphans = std::ranges::any_of(runtime->second.orphans,
                                               [](const auto& orphan) { return orphan.second; });
  return !has_orphans && now.steady_ns - runtime->second.reported_ns < unresponsive_ns();
}

bool SchedulerState::is_validating(const std::string& name) const {
  const auto runtime = node_runtimes_.find(name);
  return runtime != node_runtimes_.end() &&
         (runtime->second.validation_run != 0 || runtime->second.validates);
}

// The agent does not report these fields.
void SchedulerState::keep_scheduler_fields(const wire::Node& before, wire::Node& after) const {
  after.set_drained(before.drained());
  after.set_drained_why(before.drained_why());
  after.set_drained_by_verdict(before.drained_by_verdict());
  *after.mutable_failed() = before.failed();
  after.set_verdict(before.verdict());
  after.set_verdict_text(before.verdict_text());
  after.set_validated(before.validated());
  after.set_last_run(before.last_run());
}

void SchedulerState::add_notice(bool is_warning, const std::string& node, std::string text) {
  notices_.push_back({.is_warning = is_warning, .node = node, .text = std::move(text)});
}

std::vector<SchedulerState::Notice> SchedulerState::take_notices() {
  return std::exchange(notices_, {});
}

size_t SchedulerState::drained_by_verdict() const {
  return static_cast<size_t>(std::ranges::count_if(
      nodes_, [](const auto& node) { return node.second.drained_by_verdict(); }));
}

size_t SchedulerState::max_drained_by_verdict() const {
  return share_of(nodes_.size(), health_.max_drained_percent);
}

Result<wire::VerdictReply> SchedulerState::record_verdict(const std::string& name,
                                                          const wire::Verdict& verdict, Now now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return fail(Errc::not_found, "there is no node {}", printable(name));
  FF_TRY(check_verdict(verdict));
  wire::VerdictReply reply;
  reply.set_effect(static_cast<uint32_t>(apply_verdict(found->second, verdict, now)));
  *reply.mutable_node() = found->second;
  reply.set_out(static_cast<uint32_t>(drained_by_verdict()));
  reply.set_most(static_cast<uint32_t>(max_drained_by_verdict()));
  return reply;
}

VerdictEffect SchedulerState::apply_verdict(wire::Node& node, const wire::Verdict& verdict,
                                            Now now) {
  const std::string& name = node.name();
  const std::string text = text_of(verdict);
  node.set_verdict(verdict.verdict());
  node.set_verdict_text(text);
  node.set_validated(now.wall_ns);
  changed_.nodes.insert(name);
  needs_pass_ = true;
  const bool was_out = node.drained_by_verdict();
  if (worst_of(verdict) == validate::Verdict::could_not_run) {
    add_notice(true, name, "could not run its checks: " + text);
    return VerdictEffect::none;
  }
  // Checks that had failed before and did not run this time.
  std::vector<std::string> failed;
  for (const std::string& one : node.failed()) {
    if (!has(verdict.checks(), one) && !has(verdict.failed(), one)) failed.push_back(one);
  }
  if (worst_of(verdict) == validate::Verdict::pass) {
    if (!was_out) return VerdictEffect::none;
    node.mutable_failed()->Assign(failed.begin(), failed.end());
    if (!failed.empty()) return VerdictEffect::not_rechecked;
    node.set_drained_by_verdict(false);
    add_notice(false, name, "passed its checks and is back in service");
    return VerdictEffect::returned;
  }
  if (!was_out && drained_by_verdict() >= max_drained_by_verdict()) {
    add_notice(
        true, name,
        fmt::format(
            "stays in service although it failed its checks ({}): {} of {} nodes are drained by "
            "verdict, which is the maximum",
            text, drained_by_verdict(), nodes_.size()));
    return VerdictEffect::limit_reached;
  }
  failed.insert(failed.begin(), verdict.failed().begin(), verdict.failed().end());
  node.mutable_failed()->Assign(failed.begin(), failed.end());
  if (was_out) return VerdictEffect::none;
  node.set_drained_by_verdict(true);
  add_notice(true, name, "is drained by its checks: " + text);
  if (const uint64_t id = node_runtimes_[name].task; id != 0) {
    ask_to_stop(tasks_.at(id), StopReason::drained, "node " + name + " failed its checks", now);
  }
  return VerdictEffect::drained;
}

// Runs. -------------------------------------------------------------------------------------------

uint64_t SchedulerState::validation_run(const std::string& name) const {
  const auto runtime = node_runtimes_.find(name);
  return runtime == node_runtimes_.end() ? 0 : runtime->second.validation_run;
}

// Called before the rest of the report is applied.
void SchedulerState::update_validation(const wire::SyncRequest& request, Now now) {
  const std::string& name = request.node().name();
  NodeRuntime& runtime = node_runtimes_[name];
  const wire::Checks& told = request.checks();
  runtime.validates = told.runs();
  // A validation that an earlier scheduler process requested.
  if (!runtime.reported && runtime.validation_run == 0 && runtime.task == 0 && told.run() != 0) {
    runtime.validation_run = told.run();
    runtime.validation_started_ns = now.steady_ns;
  }
  if (runtime.validation_run == 0) return;
  if (told.run() == runtime.validation_run && !told.runs())
    return end_validation(name, told.verdict(), now);
  if (!runtime.boot.empty() && runtime.boot != request.boot()) {
    end_validation(name, could_not_run("the machine was rebooted meanwhile"), now);
  }
}

void SchedulerState::end_validation(const std::string& name, const wire::Verdict& verdict,
                                    Now now) {
  node_runtimes_.at(name).validation_run = 0;
  nodes_with_new_orders_.insert(name);
  wire::Node& node = nodes_.at(name);
  node.set_last_run(now.wall_ns);
  const auto sound = check_verdict(verdict);
  (void)apply_verdict(
      node, sound ? verdict : could_not_run("its agent reported: " + sound.error().message), now);
}

// When the node is validated next, wall time.
int64_t SchedulerState::validation_due_ns(const wire::Node& node) const {
  if (!node.drained_by_verdict()) return node.last_run() + health_.validate_every_ns;
  // Drained nodes are validated more often, so that a repaired node returns.
  return std::max(node.last_run(), node.validated()) +
         std::min(kRecheckNs, health_.validate_every_ns);
}

// The specs of waiting tasks: nodes that match one are not validated now. Tasks that cannot start
// soon are left out.
std::vector<wire::Spec> SchedulerState::waiting_specs() const {
  std::map<std::string, wire::Spec> all;
  for (const uint64_t id : unfinished_) {
    const wire::Task& task = tasks_.at(id);
    if (phase_of(task) != TaskPhase::queued) continue;
    const auto waiting = waits_.find(id);
    const WaitReason why = waiting == waits_.end() ? WaitReason::resources
                                                   : static_cast<WaitReason>(waiting->second.why());
    if (why == WaitReason::unsatisfiable || why == WaitReason::quota) continue;
    wire::Spec spec;
    spec.set_group(task.spec().group());
    spec.set_zone(task.spec().zone());
    *spec.mutable_marks() = task.spec().marks();
    all.emplace(spec.SerializeAsString(), spec);
  }
  std::vector<wire::Spec> waiting_specs;
  for (auto& [key, spec] : all) waiting_specs.push_back(std::move(spec));
  return waiting_specs;
}

uint32_t SchedulerState::validating_for(const wire::Spec& spec) const {
  return static_cast<uint32_t>(std::ranges::count_if(nodes_, [&](const auto& node) {
    return is_validating(node.first) && fits(node.second, spec);
  }));
}

// Called after a scheduling pass. Returns the time of the next call.
int64_t SchedulerState::schedule_validation(Now now) {
  int64_t next_ns = kNever;
  size_t running = 0;
  std::vector<std::pair<int64_t, std::string>> due;
  for (const auto& [name, runtime] : node_runtimes_) {
    if (runtime.validation_run != 0 &&
        now.steady_ns < runtime.validation_started_ns + health_.validate_timeout_ns) {
      running++;
      next_ns = std::min(next_ns, runtime.validation_started_ns + health_.validate_timeout_ns);
      continue;
    }
    if (runtime.validation_run != 0) {
      end_validation(name,
                     could_not_run("no end within " + format_duration(health_.validate_timeout_ns)),
                     now);
      continue;
    }
    if (health_.validate_every_ns == 0) continue;
    wire::Node& node = nodes_.at(name);
    assign_last_run(node, now);
    const int64_t at_ns = validation_due_ns(node);
    if (at_ns > now.wall_ns) {
      next_ns = std::min(next_ns, now.steady_ns + at_ns - now.wall_ns);
    } else if (is_present(name, now) && !runtime.validates && runtime.task == 0 &&
               !node.drained()) {
      due.emplace_back(at_ns, name);
    }
  }
  start_validations(std::move(due), running, now);
  return next_ns;
}

// Spreads the first validation of new nodes over the first period.
void SchedulerState::assign_last_run(wire::Node& node, Now now) {
  const int64_t validated_ns = std::min(node.validated(), now.wall_ns);
  int64_t last_ns = std::min(node.last_run(), now.wall_ns);  // the clock may have been set back
  if (last_ns == 0) {
    const int64_t seconds = std::max<int64_t>(1, health_.validate_every_ns / kSecond);
    const auto turn = static_cast<int64_t>(fnv1a(node.name()) % static_cast<uint64_t>(seconds));
    last_ns = now.wall_ns - health_.validate_every_ns + turn * kSecond;
  }
  if (last_ns == node.last_run() && validated_ns == node.validated()) return;
  node.set_last_run(last_ns);
  node.set_validated(validated_ns);
  changed_.nodes.insert(node.name());
}

// Nodes that are overdue for the longest time first.
void SchedulerState::start_validations(std::vector<std::pair<int64_t, std::string>> due,
                                       size_t running, Now now) {
  const size_t most = share_of(nodes_.size(), kRunningPercent);
  if (due.empty() || running >= most) return;
  std::ranges::sort(due);
  const auto wanted = waiting_specs();
  for (const auto& [at_ns, name] : due) {
    if (running == most) return;
    const wire::Node& node = nodes_.at(name);
    const bool is_wanted =
        !node.drained_by_verdict() &&
        std::ranges::any_of(wanted, [&](const wire::Spec& spec) { return fits(node, spec); });
    if (is_wanted) continue;
    NodeRuntime& runtime = node_runtimes_.at(name);
    runtime.validation_run = static_cast<uint64_t>(now.wall_ns);
    runtime.validation_started_ns = now.steady_ns;
    nodes_with_new_orders_.insert(name);
    running++;
    add_notice(false, name, "runs its checks");
  }
}

}  // namespace ff::scheduler
