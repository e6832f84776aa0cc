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
  std::string story = "calls";
  uint64_t seed = 1;
  uint64_t seeds = 1;
  bool list = false;
};

void list_stories(Session& session) {
  Json list = Json::array();
  auto table = session.out.table({{"SCENARIO"}, {"WHAT HAPPENS"}});
  for (const auto& story : scenario::scenarios()) {
    table.row({std::string(story.name), std::string(story.about)});
    list.push_back({{"story", story.name}, {"about", story.about}});
  }
  session.out.data({{"stories", std::move(list)}});
}

Result<void> run_sim(Session& session, const SimOptions& options) {
  if (options.list) {
    list_stories(session);
    return {};
  }
  const scenario::Scenario* const story = scenario::find_scenario(options.story);
  if (story == nullptr) {
    Error error = fail(Errc::usage, "there is no scenario '{}'", options.story);
    error.hint = "`ff sim --list` prints them.";
    return error;
  }
  // What a simulated daemon complains of is what was asked for.
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
    const auto outcome = story->run(seed);
    if (!outcome) {
      session.out.data({{"story", story->name}, {"seed", seed}, {"runs", std::move(runs)}});
      Error error = outcome.error();
      error.hint =
          fmt::format("`ff sim --scenario {} --seed {}` reproduces it.", story->name, seed);
      return std::move(error).with_context(
          fmt::format("scenario {}, seed {}: ", story->name, seed));
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
  session.out.data({{"story", story->name}, {"seeds", options.seeds}, {"runs", std::move(runs)}});
  session.out.note("{} seeds of scenario {}: every invariant held", format_count(options.seeds),
                   story->name);
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
  sim.option("--scenario", text(options.story, "NAME"), "The simulated cluster and its faults")
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
