// `ff sim`: replays a simulated cluster from a seed.
#include <string>

#include "cmd/cli/cli.h"
#include "lab/scenario/scenarios.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

struct SimOptions {
  std::string scenario = "calls";
  uint64_t seed = 1;
  uint64_t seeds = 1;
  bool list = false;
};

void list_scenarios(Session& session) {
  Json list = Json::array();
  auto table = session.out.table({{"SCENARIO"}, {"WHAT HAPPENS"}});
  for (const auto& one : scenario::scenarios()) {
    table.row({std::string(one.name), std::string(one.about)});
    list.push_back({{"story", one.name}, {"about", one.about}});
  }
  session.out.data({{"stories", std::move(list)}});
}

Result<void> run_sim(Session& session, const SimOptions& options) {
  if (options.list) {
    list_scenarios(session);
    return {};
  }
  const scenario::Scenario* const selected = scenario::find_scenario(options.scenario);
  if (selected == nullptr) {
    Error error = fail(Errc::usage, "there is no scenario '{}'", options.scenario);
    error.hint = "`ff sim --list` prints them.";
    return error;
  }
  // Errors of simulated daemons are expected: log them only with --verbose.
  log_setup({.level = session.out.mode().verbose ? LogLevel::debug : LogLevel::none});
  Json runs = Json::array();
  auto table = session.out.table({{"SEED", Align::right},
                                  {"TRACE"},
                                  {"TIME", Align::right},
                                  {"STEPS", Align::right},
                                  {"FAULTS", Align::right},
                                  {"CARRIED", Align::right}});
  for (uint64_t i = 0; i < options.seeds; i++) {
    FF_TRY(session.stop.check());
    const uint64_t seed = options.seed + i;
    const auto outcome = selected->run(seed);
    if (!outcome) {
      session.out.data({{"story", selected->name}, {"seed", seed}, {"runs", std::move(runs)}});
      Error error = outcome.error();
      error.hint =
          fmt::format("`ff sim --scenario {} --seed {}` reproduces it.", selected->name, seed);
      return std::move(error).with_context(
          fmt::format("scenario {}, seed {}: ", selected->name, seed));
    }
    const std::string trace = fmt::format("{:016x}", outcome->trace);
    const double seconds = to_seconds(outcome->virtual_ns);
    if (options.seeds <= 1000) {
      table.row({fmt::to_string(seed), trace, fmt::format("{:.1f}s", seconds),
                 format_count(outcome->steps), format_count(outcome->faults),
                 format_size(outcome->bytes)});
      runs.push_back({{"seed", seed},
                      {"trace", trace},
                      {"seconds", seconds},
                      {"steps", outcome->steps},
                      {"faults", outcome->faults},
                      {"bytes", outcome->bytes}});
    }
  }
  session.out.data(
      {{"story", selected->name}, {"seeds", options.seeds}, {"runs", std::move(runs)}});
  session.out.note("{} seeds of scenario {}: every invariant held", format_count(options.seeds),
                   selected->name);
  return {};
}

}  // namespace

void declare_sim(Command& sim) {
  auto& options = sim.keep<SimOptions>();
  sim.about(
      "Runs a whole cluster on one thread in virtual time: the real code of clients and servers "
      "over a simulated network, with faults that the seed determines. ff checks invariants all "
      "the time; if one is violated, the run ends with exit code 3 and reports the seed, which "
      "reproduces the failure.\n\nThe trace is a hash of all messages with their times, and of the "
      "result of each step: equal seeds give equal traces.");
  sim.option("--scenario", text(options.scenario, "NAME"), "The simulated cluster and its faults")
      .alias("--story");
  sim.option("--seed", number(options.seed), "First seed");
  sim.option("--seeds", number(options.seeds), "Number of seeds");
  sim.flag("--list", options.list, "List the scenarios");
  sim.example("ff sim --scenario calls --seed 42", "replay one run");
  sim.example("ff sim --scenario calls --seeds 100000",
              "search for a seed that violates an invariant");
  sim.run([&options](Session& session) { return run_sim(session, options); });
}

}  // namespace ff::cmd
