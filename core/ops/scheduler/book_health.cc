// book_health.cc: verdicts of ff validate, what they do to nodes, and runs of the checks on nodes
// that are idle.
#include <algorithm>

#include "ops/scheduler/book.h"
#include "ops/validate/check.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

constexpr int64_t kDayNs = 24 * 3600 * kSecond;
constexpr size_t kRunningPercent = 2;  // of all nodes, at once; one in any case
constexpr int kNamesMost = 1000;
constexpr int kNamesShown = 4;
constexpr size_t kNameMost = 100;
constexpr size_t kTextMost = 300;

size_t share_of(size_t nodes, size_t percent) { return std::max<size_t>(1, nodes * percent / 100); }

validate::Verdict worst_of(const wire::Verdict& verdict) {
  return static_cast<validate::Verdict>(verdict.verdict());
}

Result<void> check_verdict(const wire::Verdict& verdict) {
  if (verdict.verdict() < static_cast<uint32_t>(validate::Verdict::pass) ||
      verdict.verdict() > static_cast<uint32_t>(validate::Verdict::fail)) {
    return fail(Errc::usage, "a verdict that there is none of");
  }
  for (const auto* names : {&verdict.failed(), &verdict.checks()}) {
    const bool fits = std::ranges::all_of(
        *names, [](const std::string& name) { return !name.empty() && name.size() <= kNameMost; });
    if (!fits || names->size() > kNamesMost) return fail(Errc::usage, "names of no checks");
  }
  const bool is_bad = worst_of(verdict) >= validate::Verdict::degraded;
  if (is_bad && verdict.failed().empty()) return fail(Errc::usage, "no check has failed");
  return {};
}

// "pci.link, log.xid": at most so many, and how many more.
std::string text_of(const wire::Verdict& verdict) {
  std::string text = verdict.text().substr(0, kTextMost);
  if (!text.empty()) return text;
  for (int i = 0; i < std::min(verdict.failed_size(), kNamesShown); i++) {
    text += (i > 0 ? ", " : "") + verdict.failed(i);
  }
  const int more = verdict.failed_size() - kNamesShown;
  return more > 0 ? text + fmt::format(" and {} more", more) : text;
}

wire::Verdict no_verdict(std::string why) {
  wire::Verdict verdict;
  verdict.set_verdict(static_cast<uint32_t>(validate::Verdict::could_not_run));
  verdict.set_text(std::move(why));
  return verdict;
}

template <class Names>
bool has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a task of that kind may have the node.
bool fits(const wire::Node& node, const wire::Spec& spec) {
  return node.group() == spec.group() && (spec.zone().empty() || node.zone() == spec.zone()) &&
         std::ranges::all_of(spec.marks(),
                             [&](const std::string& mark) { return has(node.marks(), mark); });
}

}  // namespace

bool in_spite_of_verdict(const wire::Node& node) {
  return node.verdict() >= static_cast<uint32_t>(validate::Verdict::degraded) && !node.drained() &&
         !node.drained_by_verdict();
}

// It answers, and nothing is left on it.
bool Book::is_present(const std::string& name, Now now) const {
  const auto seen = seen_.find(name);
  if (seen == seen_.end() || !seen->second.heard) return false;
  const bool has_strays =
      std::ranges::any_of(seen->second.strays, [](const auto& stray) { return stray.second; });
  return !has_strays && now.steady_ns - seen->second.heard_ns < quiet_ns();
}

bool Book::is_validating(const std::string& name) const {
  const auto seen = seen_.find(name);
  return seen != seen_.end() && (seen->second.run != 0 || seen->second.checks);
}

// Its agent tells nothing of these.
void Book::keep_health(const wire::Node& before, wire::Node& after) const {
  after.set_drained(before.drained());
  after.set_drained_why(before.drained_why());
  after.set_drained_by_verdict(before.drained_by_verdict());
  *after.mutable_failed() = before.failed();
  after.set_verdict(before.verdict());
  after.set_verdict_text(before.verdict_text());
  after.set_validated(before.validated());
  after.set_last_run(before.last_run());
}

void Book::note(bool is_warning, const std::string& node, std::string text) {
  notices_.push_back({.is_warning = is_warning, .node = node, .text = std::move(text)});
}

std::vector<Book::Notice> Book::take_notices() { return std::exchange(notices_, {}); }

size_t Book::drained_by_verdict() const {
  return static_cast<size_t>(std::ranges::count_if(
      nodes_, [](const auto& node) { return node.second.drained_by_verdict(); }));
}

size_t Book::most_drained() const { return share_of(nodes_.size(), health_.max_drained); }

Result<wire::VerdictReply> Book::judge(const std::string& name, const wire::Verdict& verdict,
                                       Now now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return fail(Errc::not_found, "there is no node {}", printable(name));
  FF_TRY(check_verdict(verdict));
  wire::VerdictReply reply;
  reply.set_effect(static_cast<uint32_t>(apply(found->second, verdict, now)));
  *reply.mutable_node() = found->second;
  reply.set_out(static_cast<uint32_t>(drained_by_verdict()));
  reply.set_most(static_cast<uint32_t>(most_drained()));
  return reply;
}

Effect Book::apply(wire::Node& node, const wire::Verdict& verdict, Now now) {
  const std::string& name = node.name();
  const std::string text = text_of(verdict);
  node.set_verdict(verdict.verdict());
  node.set_verdict_text(text);
  node.set_validated(now.wall_ns);
  changed_.nodes.insert(name);
  undecided_ = true;
  const bool was_out = node.drained_by_verdict();
  if (worst_of(verdict) == validate::Verdict::could_not_run) {
    note(true, name, "its checks could not run: " + text);
    return Effect::none;
  }
  // What had failed before and was not looked at now.
  std::vector<std::string> failed;
  for (const std::string& one : node.failed()) {
    if (!has(verdict.checks(), one) && !has(verdict.failed(), one)) failed.push_back(one);
  }
  if (worst_of(verdict) == validate::Verdict::pass) {
    if (!was_out) return Effect::none;
    node.mutable_failed()->Assign(failed.begin(), failed.end());
    if (!failed.empty()) return Effect::unlooked;
    node.set_drained_by_verdict(false);
    note(false, name, "has passed its checks and is back in service");
    return Effect::returned;
  }
  if (!was_out && drained_by_verdict() >= most_drained()) {
    note(true, name,
         fmt::format("stays in service in spite of its checks ({}): {} of {} nodes are drained by "
                     "verdict, and no more may be",
                     text, drained_by_verdict(), nodes_.size()));
    return Effect::spared;
  }
  failed.insert(failed.begin(), verdict.failed().begin(), verdict.failed().end());
  node.mutable_failed()->Assign(failed.begin(), failed.end());
  if (was_out) return Effect::none;
  node.set_drained_by_verdict(true);
  note(true, name, "is drained by its checks: " + text);
  if (const uint64_t id = seen_[name].task; id != 0) {
    ask_to_stop(tasks_.at(id), StopWhy::drained, "node " + name + " has failed its checks", now);
  }
  return Effect::drained;
}

// Runs. -------------------------------------------------------------------------------------------

uint64_t Book::checks(const std::string& name) const {
  const auto seen = seen_.find(name);
  return seen == seen_.end() ? 0 : seen->second.run;
}

// Before the rest of the report.
void Book::hear_checks(const wire::SyncRequest& request, Now now) {
  const std::string& name = request.node().name();
  Seen& seen = seen_[name];
  const wire::Checks& told = request.checks();
  seen.checks = told.runs();
  // Begun for the scheduler before this one started.
  if (!seen.heard && seen.run == 0 && seen.task == 0 && told.run() != 0) {
    seen.run = told.run();
    seen.run_ns = now.steady_ns;
  }
  if (seen.run == 0) return;
  if (told.run() == seen.run && !told.runs()) return end_run(name, told.verdict(), now);
  if (!seen.boot.empty() && seen.boot != request.boot()) {
    end_run(name, no_verdict("the machine has started anew meanwhile"), now);
  }
}

void Book::end_run(const std::string& name, const wire::Verdict& verdict, Now now) {
  seen_.at(name).run = 0;
  ordered_.insert(name);
  wire::Node& node = nodes_.at(name);
  node.set_last_run(now.wall_ns);
  const auto sound = check_verdict(verdict);
  (void)apply(node, sound ? verdict : no_verdict("its agent told " + sound.error().message), now);
}

// When its checks run next, wall.
int64_t Book::due_ns(const wire::Node& node) const {
  if (!node.drained_by_verdict()) return node.last_run() + health_.every_ns;
  // So that one that was repaired returns.
  return std::max(node.last_run(), node.validated()) + std::min(kDayNs, health_.every_ns);
}

// Of tasks that wait: nodes that they could have are left to them. Some wait in vain.
std::vector<wire::Spec> Book::demands() const {
  std::map<std::string, wire::Spec> all;
  for (const uint64_t id : open_) {
    const wire::Task& task = tasks_.at(id);
    if (phase_of(task) != TaskPhase::queued) continue;
    const auto waiting = waits_.find(id);
    const Why why = waiting == waits_.end() ? Why::first : static_cast<Why>(waiting->second.why());
    if (why == Why::never || why == Why::no_quota) continue;
    wire::Spec spec;
    spec.set_group(task.spec().group());
    spec.set_zone(task.spec().zone());
    *spec.mutable_marks() = task.spec().marks();
    all.emplace(spec.SerializeAsString(), spec);
  }
  std::vector<wire::Spec> demands;
  for (auto& [key, spec] : all) demands.push_back(std::move(spec));
  return demands;
}

uint32_t Book::validating_for(const wire::Spec& spec) const {
  return static_cast<uint32_t>(std::ranges::count_if(nodes_, [&](const auto& node) {
    return is_validating(node.first) && fits(node.second, spec);
  }));
}

// After the decision. Returns when to come again.
int64_t Book::look_after(Now now) {
  int64_t next_ns = kNever;
  size_t running = 0;
  std::vector<std::pair<int64_t, std::string>> due;
  for (const auto& [name, seen] : seen_) {
    if (seen.run != 0 && now.steady_ns < seen.run_ns + health_.run_ns) {
      running++;
      next_ns = std::min(next_ns, seen.run_ns + health_.run_ns);
      continue;
    }
    if (seen.run != 0) {
      end_run(name, no_verdict("no end within " + format_duration(health_.run_ns)), now);
      continue;
    }
    if (health_.every_ns == 0) continue;
    wire::Node& node = nodes_.at(name);
    date(node, now);
    const int64_t at_ns = due_ns(node);
    if (at_ns > now.wall_ns) {
      next_ns = std::min(next_ns, now.steady_ns + at_ns - now.wall_ns);
    } else if (is_present(name, now) && !seen.checks && seen.task == 0 && !node.drained()) {
      due.emplace_back(at_ns, name);
    }
  }
  start_runs(std::move(due), running, now);
  return next_ns;
}

// A new node's turn comes at a time of its own within the first period.
void Book::date(wire::Node& node, Now now) {
  const int64_t validated_ns = std::min(node.validated(), now.wall_ns);
  int64_t last_ns = std::min(node.last_run(), now.wall_ns);  // the clock may have been set back
  if (last_ns == 0) {
    const int64_t seconds = std::max<int64_t>(1, health_.every_ns / kSecond);
    const auto turn = static_cast<int64_t>(hash_of(node.name()) % static_cast<uint64_t>(seconds));
    last_ns = now.wall_ns - health_.every_ns + turn * kSecond;
  }
  if (last_ns == node.last_run() && validated_ns == node.validated()) return;
  node.set_last_run(last_ns);
  node.set_validated(validated_ns);
  changed_.nodes.insert(node.name());
}

// Those that have waited longest first.
void Book::start_runs(std::vector<std::pair<int64_t, std::string>> due, size_t running, Now now) {
  const size_t most = share_of(nodes_.size(), kRunningPercent);
  if (due.empty() || running >= most) return;
  std::ranges::sort(due);
  const auto wanted = demands();
  for (const auto& [at_ns, name] : due) {
    if (running == most) return;
    const wire::Node& node = nodes_.at(name);
    const bool is_wanted =
        !node.drained_by_verdict() &&
        std::ranges::any_of(wanted, [&](const wire::Spec& spec) { return fits(node, spec); });
    if (is_wanted) continue;
    Seen& seen = seen_.at(name);
    seen.run = static_cast<uint64_t>(now.wall_ns);
    seen.run_ns = now.steady_ns;
    ordered_.insert(name);
    running++;
    note(false, name, "runs its checks");
  }
}

}  // namespace ff::scheduler
