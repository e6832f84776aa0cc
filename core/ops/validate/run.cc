// run.cc: child processes, their pipes and deadlines.
#include "ops/validate/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ops/validate/interference.h"
#include "ops/validate/program.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr size_t kReadersAtOnce = 8;
constexpr int kStopPollMs = 100;  // latency of a stop
constexpr int64_t kDyingNs = kSecond;
constexpr size_t kCheckOutputMax = 4 * kMiB;  // per check

// The process of one check.
struct Child {
  const Check* check = nullptr;
  pid_t pid = 0;
  int output_fd = -1;  // read end of its output
  std::string text = {};
  int64_t began_ns = 0;
  int64_t deadline_ns = 0;  // from the start
  int64_t killed_ns = 0;    // 0: not yet
  std::optional<int> status = {};
  double used_seconds = 0;  // CPU time, after its exit
  MachineUsage usage = {};  // of the machine at the start; loads only
  bool hung = false;
};

[[noreturn]] void be_child(const Check& check, const CheckContext& context, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Close descriptors of the parent: a hung child would keep its lock.
  if (out > STDERR_FILENO + 1) ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(out) - 1, 0);
  ::close_range(static_cast<unsigned>(out) + 1, ~0u, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT}) {
    ::signal(signal, SIG_DFL);
  }
  CheckContext mine = context;
  mine.report = [out, &check](Finding finding) {
    if (finding.name.empty()) finding.name = check.name;
    const std::string line = to_line(finding) + "\n";
    for (size_t at = 0; at < line.size();) {
      const ssize_t put = ::write(out, line.data() + at, line.size() - at);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) ::_exit(1);
      at += static_cast<size_t>(put);
    }
  };
  check.run(mine);
  ::_exit(0);
}

Result<Child> begin(const Check& check, const CheckContext& context) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // the parent must not block
  Child child{.check = &check, .output_fd = ends[0]};
  child.began_ns = context.clock.steady_ns();
  child.deadline_ns = check.deadline_ns(context.level);
  if (check.cost == CheckCost::load) child.usage = usage_of(context.tree, context.clock);
  (void)context.rng.next();  // different random numbers in each child
  child.pid = ::fork();
  const int cause = errno;
  if (child.pid == 0) be_child(check, context, ends[1]);
  ::close(ends[1]);
  if (child.pid > 0) return child;
  ::close(ends[0]);
  return errno_error(cause, fmt::format("check {}", check.name));
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Whether the child is finished.
bool ended(Child& child, int64_t now_ns) {
  int status = 0;
  rusage used = {};
  if (::wait4(child.pid, &status, WNOHANG, &used) == child.pid) {
    child.status = status;
    child.used_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    (void)read_available(child.output_fd, child.text, kCheckOutputMax);
    return true;
  }
  if (child.killed_ns == 0 && now_ns - child.began_ns > child.deadline_ns) {
    child.hung = true;
    child.killed_ns = now_ns;
    ::kill(child.pid, SIGKILL);
  }
  // A child that hangs in the kernel survives even SIGKILL: it is left behind.
  return child.killed_ns != 0 && now_ns - child.killed_ns > kDyingNs;
}

Finding of_end(const Child& child) {
  Finding finding{.name = child.check->name};
  if (child.hung) {
    const bool stays = !child.status.has_value();
    finding.found = fmt::format("missed its deadline of {} s{}", child.deadline_ns / kSecond,
                                stays ? ", and still hangs in the kernel" : "");
    finding.hint = stays ? "See its stack (/proc/PID/stack) and restart the node."
                         : "Run it alone: ff validate --only " + finding.name;
    return finding;
  }
  if (child.status && WIFSIGNALED(*child.status) && WTERMSIG(*child.status) == SIGKILL) {
    finding.found = "was killed";
    finding.hint = "See the kernel log: memory may have run out. Run it on an idle node.";
    return finding;
  }
  if (child.status && WIFSIGNALED(*child.status)) {
    finding.verdict = Verdict::fail;
    finding.found = fmt::format("was ended by {}", ::strsignal(WTERMSIG(*child.status)));
    finding.hint = "See the kernel log: bad memory kills programs like this.";
    return finding;
  }
  finding.found = "ended without output";
  return finding;
}

CheckResult outcome_of(const Child& child, const SystemTree& tree, Clock& clock) {
  CheckResult outcome{.check = child.check};
  outcome.seconds = to_seconds(clock.steady_ns() - child.began_ns);
  std::string load;
  if (child.check->cost == CheckCost::load) {
    load = other_load(child.usage, usage_of(tree, clock),
                      {.pid = child.pid, .seconds = child.used_seconds}, ::getpid());
  }
  for (const std::string_view line : split(child.text, '\n')) {
    if (auto finding = from_line(line)) outcome.findings.push_back(std::move(*finding));
  }
  const bool well = child.status && WIFEXITED(*child.status) && WEXITSTATUS(*child.status) == 0;
  if (!well || outcome.findings.empty()) outcome.findings.push_back(of_end(child));
  for (Finding& finding : outcome.findings) {
    finding.seconds = outcome.seconds;
    finding.load = load;
  }
  return outcome;
}

// The finding of a load that was not run because of a job.
CheckResult not_beside(const Check& check, const std::string& job) {
  return {.check = &check,
          .findings = {{.name = check.name,
                        .found = "a job runs on this node: " + job,
                        .hint = "Run it when the node is idle, or with --force."}}};
}

// The running children.
class RunningChecks {
 public:
  RunningChecks(const SystemTree& tree, Clock& clock) : tree_(tree), clock_(clock) {}
  ~RunningChecks() {
    for (Child& child : children_) {
      ::kill(child.pid, SIGKILL);
      ::close(child.output_fd);
    }
  }
  void add(Child child) { children_.push_back(std::move(child)); }
  size_t count() const { return children_.size(); }
  RunProgress progress() const {
    const auto oldest = std::ranges::min_element(children_, {}, &Child::began_ns);
    if (oldest == children_.end()) return {};
    return {.check = oldest->check,
            .seconds = to_seconds(clock_.steady_ns() - oldest->began_ns),
            .beside = children_.size() - 1};
  }
  // Waits one turn; returns the children that have exited meanwhile.
  std::vector<CheckResult> turn() {
    std::vector<pollfd> waits;
    for (const Child& child : children_) waits.push_back({child.output_fd, POLLIN, 0});
    (void)::poll(waits.data(), waits.size(), kStopPollMs);
    std::vector<CheckResult> results;
    const int64_t now_ns = clock_.steady_ns();
    for (Child& child : children_)
      (void)read_available(child.output_fd, child.text, kCheckOutputMax);
    std::erase_if(children_, [&](Child& child) {
      if (!ended(child, now_ns)) return false;
      results.push_back(outcome_of(child, tree_, clock_));
      ::close(child.output_fd);
      return true;
    });
    return results;
  }

 private:
  const SystemTree& tree_;
  Clock& clock_;
  std::vector<Child> children_;
};

// Calls RunPlan::progress when something has changed, and every tenth of a second.
class ProgressReports {
 public:
  ProgressReports(const RunPlan& plan, Clock& clock) : plan_(plan), clock_(clock) {}
  void show(const RunProgress& now) {
    constexpr int64_t kEveryNs = 100 * kMillisecond;
    const int64_t now_ns = clock_.steady_ns();
    const bool changed = now.done != last_.done || now.check != last_.check;
    if (!plan_.progress || (!changed && now_ns - shown_ns_ < kEveryNs)) return;
    plan_.progress(now);
    last_ = now;
    shown_ns_ = now_ns;
  }

 private:
  const RunPlan& plan_;
  Clock& clock_;
  RunProgress last_;
  int64_t shown_ns_ = 0;
};

template <class T>
T field(const nlohmann::json& from, const char* name, T otherwise) {
  const auto found = from.find(name);
  if (found == from.end() || found->is_null()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>)
    return found->is_string() ? found->get<T>() : otherwise;
  else
    return found->is_number() ? found->get<T>() : otherwise;
}

}  // namespace

std::string to_line(const Finding& finding) {
  nlohmann::json line = {{"name", finding.name},
                         {"part", finding.part},
                         {"verdict", verdict_name(finding.verdict)},
                         {"found", finding.found},
                         {"unit", finding.unit},
                         {"better", static_cast<int>(finding.better)},
                         {"expected", finding.expected},
                         {"source", finding.source},
                         {"hint", finding.hint}};
  if (finding.value) line["value"] = *finding.value;
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::optional<Finding> from_line(std::string_view line) {
  const auto read = nlohmann::json::parse(line, nullptr, false);
  if (!read.is_object()) return std::nullopt;
  const auto verdict = parse_verdict(field(read, "verdict", std::string()));
  Finding finding{.name = field(read, "name", std::string())};
  if (!verdict || finding.name.empty()) return std::nullopt;
  finding.verdict = *verdict;
  finding.part = field(read, "part", std::string());
  finding.found = field(read, "found", std::string());
  finding.unit = field(read, "unit", std::string());
  finding.better = static_cast<Better>(std::clamp(field(read, "better", 0), 0, 2));
  finding.expected = field(read, "expected", std::string());
  finding.source = field(read, "source", std::string());
  finding.hint = field(read, "hint", std::string());
  if (const auto value = read.find("value"); value != read.end() && value->is_number()) {
    finding.value = value->get<double>();
  }
  return finding;
}

std::vector<const Check*> select_checks(RunLevel level, const std::vector<std::string>& only,
                                        std::optional<double> budget_seconds,
                                        std::vector<const Check*>& over_budget) {
  std::vector<const Check*> wanted;
  for (const Check& check : all_checks()) {
    const bool asked = only.empty() || std::ranges::any_of(only, [&](const std::string& one) {
                         return one == check.group() || one == check.name;
                       });
    if (asked) wanted.push_back(&check);
  }
  if (!budget_seconds) return wanted;
  std::vector<const Check*> by_worth = wanted;
  std::ranges::stable_sort(by_worth, std::greater(), &Check::worth);
  double left = *budget_seconds;
  for (const Check* const check : by_worth) {
    // Checks that only read run in parallel and cost no extra time.
    const bool is_load = check->cost == CheckCost::load;
    const double takes = check->seconds_at(level);
    if (takes <= (is_load ? left : *budget_seconds)) {
      left -= is_load ? takes : 0;
      continue;
    }
    over_budget.push_back(check);
    std::erase(wanted, check);
  }
  return wanted;
}

Result<std::vector<CheckResult>> run_checks(const SystemTree& tree, Clock& clock,
                                            const StopToken& stop, const RunPlan& plan,
                                            const std::function<void(const CheckResult&)>& ended) {
  SeededRng rng(system_seed());
  const CheckContext context{.tree = tree,
                             .clock = clock,
                             .rng = rng,
                             .level = plan.level,
                             .inventory = plan.inventory,
                             .since_ns = plan.since_ns,
                             .log_file = plan.log_file,
                             .scratch = plan.scratch,
                             .fault = plan.fault,
                             .allreduce_ranks = plan.allreduce_ranks,
                             .before = plan.before,
                             .report = {}};
  std::vector<CheckResult> results;
  const auto take = [&](CheckResult outcome) {
    ended(outcome);
    results.push_back(std::move(outcome));
  };
  std::vector<const Check*> queue;
  for (const CheckCost cost : {CheckCost::reads, CheckCost::load}) {
    for (const Check* const check : plan.checks) {
      if (check->cost != cost) continue;
      const bool disturbs = cost == CheckCost::load && !plan.job.empty();
      if (!disturbs) queue.push_back(check);
      if (disturbs) take(not_beside(*check, plan.job));
    }
  }
  RunningChecks running(tree, clock);
  ProgressReports progress(plan, clock);
  size_t next = 0;
  while (next < queue.size() || running.count() > 0) {
    FF_TRY(stop.check());
    while (next < queue.size()) {
      const bool alone = queue[next]->cost == CheckCost::load;
      if (running.count() >= (alone ? 1 : kReadersAtOnce)) break;
      FF_TRY(Child child, begin(*queue[next], context));
      running.add(std::move(child));
      next++;
    }
    RunProgress now = running.progress();
    now.done = results.size();
    now.total = plan.checks.size();
    progress.show(now);
    for (CheckResult& outcome : running.turn()) take(std::move(outcome));
  }
  std::ranges::sort(results, {}, [&](const CheckResult& outcome) {
    return std::ranges::find(plan.checks, outcome.check) - plan.checks.begin();
  });
  return results;
}

}  // namespace ff::validate
