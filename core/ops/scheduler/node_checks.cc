// node_checks.cc: the process, and what it prints.
#include "ops/scheduler/node_checks.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/text.h"

namespace ff::scheduler {
namespace {

constexpr size_t kPrintedMost = 4 * kMiB;
constexpr int64_t kEndNs = 5 * kSecond;  // after SIGTERM

void signal_group(pid_t group, int number) { ::kill(-group, number); }

}  // namespace

NodeChecks::NodeChecks(Loop& loop, std::vector<std::string> command, std::function<void()> news)
    : loop_(loop), command_(std::move(command)), news_(std::move(news)), changed_(loop) {}

void NodeChecks::want(uint64_t run) {
  if (std::exchange(wanted_, run) != run) changed_.set();
}

Task<void> NodeChecks::tend() {
  for (;;) {
    changed_.reset();
    const uint64_t run = wanted_;
    if (run == told_.run()) {
      if (!co_await changed_.wait()) co_return;
      continue;
    }
    told_.Clear();
    if (run != 0) {
      told_.set_run(run);
      told_.set_runs(true);
      news_();
      auto checking = check(run);
      auto verdict = co_await std::move(checking);
      told_.set_runs(false);
      if (verdict) {
        *told_.mutable_verdict() = *std::move(verdict);
      } else {
        const auto unknown = static_cast<uint32_t>(validate::Verdict::could_not_run);
        told_.mutable_verdict()->set_verdict(unknown);
        told_.mutable_verdict()->set_text(verdict.error().message);
      }
    }
    news_();
  }
}

Task<Result<wire::Verdict>> NodeChecks::check(uint64_t run) {
  log_info("the checks of this node begin", {{"run", run}});
  ProcessOptions options{.program = command_.front(), .argv = command_, .env = {}};
  for (char** one = ::environ; *one != nullptr; one++) options.env.emplace_back(*one);
  FF_CO_TRY(const auto process, Process::start(loop_, options));
  Gate ending(loop_);
  ending.spawn(end_unwanted(run, process->pid()));
  std::string printed;
  auto running = process->run([&printed](std::string_view more) {
    printed.append(more.substr(0, kPrintedMost - printed.size()));
  });
  auto status = co_await std::move(running);
  if (!status) signal_group(process->pid(), SIGKILL);
  Error over = fail(Errc::interrupted, "the checks have ended");
  auto closing = ending.close(std::move(over));
  co_await std::move(closing);
  if (!status) co_return std::move(status).error();
  log_info("the checks of this node have ended",
           {{"run", run}, {"how", ff::how_it_ended(*status)}});
  auto verdict = verdict_of_run(printed);
  if (verdict) co_return verdict;
  co_return std::move(verdict).error().within(ff::how_it_ended(*status) + ": ");
}

// Its processes are one group.
Task<void> NodeChecks::end_unwanted(uint64_t run, pid_t group) {
  for (;;) {
    changed_.reset();
    if (wanted_ != run) break;
    const auto waited = co_await changed_.wait();
    if (!waited) co_return;
  }
  signal_group(group, SIGTERM);
  const auto waited = co_await after(loop_, kEndNs);
  if (waited) signal_group(group, SIGKILL);
}

wire::Verdict make_verdict(validate::Verdict worst, const Found& found) {
  using validate::Verdict;
  wire::Verdict made;
  made.set_verdict(static_cast<uint32_t>(std::max(worst, Verdict::pass)));
  for (const Verdict bad : {Verdict::fail, Verdict::degraded, Verdict::could_not_run}) {
    // What could not run is told where nothing is worse.
    if (bad == Verdict::could_not_run && !made.failed().empty()) break;
    for (const auto& [name, verdict] : found) {
      if (verdict == bad && worst >= Verdict::could_not_run) made.add_failed(name);
    }
  }
  for (const auto& [name, verdict] : found) {
    if (verdict != Verdict::could_not_run) made.add_checks(name);
  }
  return made;
}

Result<wire::Verdict> verdict_of_run(std::string_view printed) {
  constexpr std::string_view kBegin = R"({"ff":)";
  printed.remove_prefix(std::min(printed.find(kBegin), printed.size()));
  const auto json = nlohmann::json::parse(printed.substr(0, printed.find('\n')), nullptr, false);
  if (!json.is_object()) return fail(Errc::failed, "it printed no report");
  const auto word = [](const nlohmann::json& of, const char* name) {
    const auto found = of.find(name);
    return found != of.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto data = json.value("data", nlohmann::json());
  const auto worst = validate::verdict_of(word(data, "verdict"));
  if (!worst) {
    const auto error = json.value("error", nlohmann::json());
    return fail(Errc::failed, "{}", printable(word(error, "message")));
  }
  // Each check with the worst of its findings.
  Found found;
  for (const auto& one : data.value("checks", nlohmann::json::array())) {
    const auto verdict = validate::verdict_of(word(one, "verdict"));
    if (!verdict) return fail(Errc::failed, "its report has a verdict that there is none of");
    auto& known = found[word(one, "check")];
    known = std::max(known, *verdict);
  }
  return make_verdict(*worst, found);
}

}  // namespace ff::scheduler
