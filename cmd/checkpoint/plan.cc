// `ff checkpoint plan`: how often a training should save.
#include <cmath>

#include "cmd/checkpoint/checkpoint.h"
#include "platform/base/units.h"
#include "training/checkpoint/save/save_interval.h"

namespace ff::cmd {
namespace {

struct SavePlanOptions {
  double save_seconds = 0;
  int64_t mtbf_ns = 0;
  uint64_t nodes = 1;
  int64_t restart_ns = 300 * kSecond;
  std::optional<int64_t> every_ns;
};

Result<void> check_save_plan(const SavePlanOptions& options) {
  if (!(options.save_seconds > 0) || !std::isfinite(options.save_seconds)) {
    return fail(Errc::usage, "--save-seconds: a time greater than 0, such as 20 or 0.5");
  }
  if (options.mtbf_ns <= 0 || options.nodes == 0) {
    return fail(Errc::usage, "--mtbf and --nodes: greater than 0");
  }
  if (options.every_ns && *options.every_ns <= 0) {
    return fail(Errc::usage, "--every: greater than 0");
  }
  return {};
}

Result<void> run_save_plan(Session& session, const SavePlanOptions& options) {
  FF_TRY(check_save_plan(options));
  const checkpoint::FailureModel model{
      .save = options.save_seconds,
      .mean_time = to_seconds(options.mtbf_ns) / static_cast<double>(options.nodes),
      .restart = to_seconds(options.restart_ns)};
  const checkpoint::SaveInterval plan =
      options.every_ns ? checkpoint::save_interval(model, to_seconds(*options.every_ns))
                       : checkpoint::best_save_interval(model);
  const auto duration = [](double seconds) {
    return format_duration(static_cast<int64_t>(seconds * kSecond));
  };
  session.out.line("save every     {}", duration(plan.seconds));
  session.out.line("a failure each {}", duration(model.mean_time));
  session.out.line("time lost      {:.2f} %, of which saves {:.2f} %", 100 * plan.lost_share,
                   100 * plan.save_share);
  session.out.data({{"interval_seconds", plan.seconds},
                    {"failure_seconds", model.mean_time},
                    {"save_seconds", model.save},
                    {"restart_seconds", model.restart},
                    {"lost_share", plan.lost_share},
                    {"save_share", plan.save_share}});
  return {};
}

}  // namespace

void declare_checkpoint_plan(Command& checkpoint) {
  Command& plan = checkpoint.sub("plan", "Compute how often a training should save");
  auto& options = plan.keep<SavePlanOptions>();
  plan.about(
      "Computes the interval between saves that loses the least time to saves, restarts and work "
      "that is done again after a failure (J. T. Daly, 2006), from the time for which a save stops "
      "the training and the mean time between failures (MTBF) of a node. Any node that fails ends "
      "the whole job.\n\nff.save_async stops a training for as long as it copies the state; "
      "'ff checkpoint save' for as long as it runs. 'ff validate report' lists the defects that a "
      "node has had.");
  plan.option("--save-seconds", number(options.save_seconds, "SECONDS"),
              "How long a save stops the training")
      .required();
  plan.option("--mtbf", duration(options.mtbf_ns), "Mean time between failures of one node")
      .required();
  plan.option("--nodes", number(options.nodes, "N"), "Number of nodes of the job");
  plan.option("--restart", duration(options.restart_ns),
              "Time from a failure until the training continues");
  plan.option("--every", duration(options.every_ns),
              "Compute what this interval would lose instead");
  plan.example("ff checkpoint plan --save-seconds 20 --mtbf 200d --nodes 128",
               "a job of 128 nodes");
  plan.example("ff checkpoint plan --save-seconds 20 --mtbf 200d --nodes 128 --every 5m",
               "what saving every 5 minutes costs");
  plan.run([&](Session& session) { return run_save_plan(session, options); });
}

}  // namespace ff::cmd
