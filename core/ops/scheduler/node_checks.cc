// node_checks.cc: the validate process and its output.
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

constexpr size_t kOutputBytesMax = 4 * kMiB;
constexpr int64_t kKillAfterNs = 5 * kSecond;  // after SIGTERM

void signal_group(pid_t group, int number) { ::kill(-group, number); }

}  // namespace

NodeChecks::NodeChecks(Loop& loop, std::vector<std::string> command,
                       std::function<void()> on_change)
    : loop_(loop), command_(std::move(command)), on_change_(std::move(on_change)), changed_(loop) {}

void NodeChecks::set_wanted_run(uint64_t run) {
  if (std::exchange(wanted_, run) != run) changed_.set();
}

Task<void> NodeChecks::run() {
  for (;;) {
    changed_.reset();
    const uint64_t run = wanted_;
    if (run == report_.run()) {
      if (!co_await changed_.wait()) co_return;
      continue;
    }
    report_.Clear();
    if (run != 0) {
      report_.set_run(run);
      report_.set_runs(true);
      on_change_();
      auto verdict = co_await run_checks(run);
      report_.set_runs(false);
      if (verdict) {
        *report_.mutable_verdict() = *std::move(verdict);
      } else {
        const auto unknown = static_cast<uint32_t>(validate::Verdict::could_not_run);
        report_.mutable_verdict()->set_verdict(unknown);
        report_.mutable_verdict()->set_text(verdict.error().message);
      }
    }
    on_change_();
  }
}

Task<Result<wire::Verdict>> NodeChecks::run_checks(uint64_t run) {
  log_info("the validation of this node starts", {{"run", run}});
  ProcessOptions options{.program = command_.front(), .argv = command_, .env = {}};
  for (char** one = ::environ; *one != nullptr; one++) options.env.emplace_back(*one);
  FF_CO_TRY(const auto process, Process::start(loop_, options));
  Gate ending(loop_);
  ending.spawn(stop_unwanted(run, process->pid()));
  std::string printed;
  auto running = process->run([&printed](std::string_view more) {
    printed.append(more.substr(0, kOutputBytesMax - printed.size()));
  });
  auto status = co_await std::move(running);
  if (!status) signal_group(process->pid(), SIGKILL);
  Error over = fail(Errc::interrupted, "the checks have ended");
  co_await ending.close(std::move(over));
  if (!status) co_return std::move(status).error();
  log_info("the validation of this node has ended",
           {{"run", run}, {"how", ff::describe_exit(*status)}});
  auto verdict = parse_validate_output(printed);
  if (verdict) co_return verdict;
  co_return std::move(verdict).error().with_context(ff::describe_exit(*status) + ": ");
}

// Signals the whole process group.
Task<void> NodeChecks::stop_unwanted(uint64_t run, pid_t group) {
  for (;;) {
    changed_.reset();
    if (wanted_ != run) break;
    const auto waited = co_await changed_.wait();
    if (!waited) co_return;
  }
  signal_group(group, SIGTERM);
  const auto waited = co_await sleep_for(loop_, kKillAfterNs);
  if (waited) signal_group(group, SIGKILL);
}

wire::Verdict make_verdict(validate::Verdict worst, const CheckVerdicts& found) {
  using validate::Verdict;
  wire::Verdict made;
  made.set_verdict(static_cast<uint32_t>(std::max(worst, Verdict::pass)));
  for (const Verdict bad : {Verdict::fail, Verdict::degraded, Verdict::could_not_run}) {
    // Checks that could not run are listed only if nothing is worse.
    if (bad == Verdict::could_not_run && !made.failed().empty()) break;
    for (const auto& [name, verdict] : found) {
      if (verdict == bad && worst >= Verdict::could_not_run) made.add_failed(name);
    }
  }
  // A skipped check has not seen the part that failed before.
  for (const auto& [name, verdict] : found) {
    const bool ran = verdict != Verdict::could_not_run && verdict != Verdict::skipped;
    if (ran) made.add_checks(name);
  }
  return made;
}

Result<wire::Verdict> parse_validate_output(std::string_view printed) {
  constexpr std::string_view kBegin = R"({"ff":)";
  printed.remove_prefix(std::min(printed.find(kBegin), printed.size()));
  const auto json = nlohmann::json::parse(printed.substr(0, printed.find('\n')), nullptr, false);
  if (!json.is_object()) return fail(Errc::failed, "it printed no JSON report");
  const auto word = [](const nlohmann::json& of, const char* name) {
    const auto found = of.find(name);
    return found != of.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto data = json.value("data", nlohmann::json());
  const auto worst = validate::parse_verdict(word(data, "verdict"));
  if (!worst) {
    const auto error = json.value("error", nlohmann::json());
    return fail(Errc::failed, "{}", printable(word(error, "message")));
  }
  // The worst finding of each check.
  CheckVerdicts found;
  for (const auto& one : data.value("checks", nlohmann::json::array())) {
    const auto verdict = validate::parse_verdict(word(one, "verdict"));
    if (!verdict) return fail(Errc::failed, "its report contains an unknown verdict");
    auto& known = found[word(one, "check")];
    known = std::max(known, *verdict);
  }
  return make_verdict(*worst, found);
}

}  // namespace ff::scheduler
