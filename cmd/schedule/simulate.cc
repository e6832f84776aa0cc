// `ff schedule simulate`: runs the scheduler over a trace in virtual time.
#include <algorithm>
#include <optional>
#include <string>

#include "cmd/schedule/schedule.h"
#include "ops/scheduler/simulate.h"
#include "platform/base/clock.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

constexpr uint64_t kNodesMax = 100'000;
constexpr uint64_t kTasksMax = 1'000'000;
constexpr uint64_t kTraceBytesMax = 1 << 30;
constexpr int64_t kPassMax = 3600 * kSecond;

struct SimulateOptions {
  uint64_t nodes = 1250;
  uint64_t zones = 2;
  uint64_t leaf_nodes = 32;
  std::optional<std::string> trace;
  uint64_t processors = 1;
  std::optional<uint64_t> tasks;
  uint64_t seed = 1;
  int64_t save_ns = 30 * kSecond;
  int64_t load_ns = 60 * kSecond;
  int64_t checkpoint_every_ns = 300 * kSecond;
  uint64_t answering_percent = 100;
  int64_t pass_every_ns = kSecond;
};

Result<void> check_range(const char* option, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return {};
  return fail(Errc::usage, "{} {}: expected {} to {}", option, value, least, most);
}

Result<scheduler::Trace> read_trace(const SimulateOptions& options) {
  io::SystemDisk disk;
  FF_TRY(const std::string text, io::read_file(disk, *options.trace, kTraceBytesMax));
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != text.npos && text[first] == '{';
  auto trace = is_json ? scheduler::parse_trace_lines(text)
                       : scheduler::parse_swf(text, static_cast<uint32_t>(options.processors));
  if (!trace) {
    Error error = std::move(trace).error().with_context(*options.trace + ": ");
    error.hint =
        "A trace is a file in the Standard Workload Format, or has one JSON object per line.";
    return error;
  }
  if (trace->tasks.empty()) return fail(Errc::usage, "{}: the trace has no tasks", *options.trace);
  return trace;
}

Result<void> check_simulation(const SimulateOptions& options) {
  FF_TRY(check_range("--nodes", options.nodes, 1, kNodesMax));
  FF_TRY(check_range("--zones", options.zones, 1, options.nodes));
  FF_TRY(check_range("--leaf", options.leaf_nodes, 1, kNodesMax));
  FF_TRY(check_range("--processors", options.processors, 1, kTasksMax));
  FF_TRY(check_range("--tasks", options.tasks.value_or(1), 1, kTasksMax));
  FF_TRY(check_range("--answering", options.answering_percent, 0, 100));
  if (options.trace && options.tasks) {
    return fail(Errc::usage, "--trace and --tasks exclude each other");
  }
  if (options.pass_every_ns <= 0 || options.pass_every_ns > kPassMax) {
    return fail(Errc::usage, "--pass-every {}: expected 1ns to 1h",
                format_duration(options.pass_every_ns));
  }
  if (options.checkpoint_every_ns <= 0) {
    return fail(Errc::usage, "--checkpoint-every must be longer than 0");
  }
  return {};
}

void tell_trace(Output& out, const SimulateOptions& options, const scheduler::Trace& trace,
                const scheduler::SimulationResult& run) {
  Json data = {
      {"nodes", options.nodes},
      {"tasks", trace.tasks.size()},
      {"seed", options.seed},
      {"passes", run.passes},
      {"pass_ms_p50", run.pass_ms_p50},
      {"pass_ms_p99", run.pass_ms_p99},
      {"pass_ms_max", run.pass_ms_max},
      {"utilisation", run.utilization},
      {"overhead", run.overhead},
      {"wait_s_p50", run.wait_s_p50},
      {"wait_s_p99", run.wait_s_p99},
      {"wide", run.wide},
      {"wide_wait_s_p50", run.wide_wait_s_p50},
      {"finished", run.finished},
      {"never", run.never},
      {"without_limit", std::ranges::count(trace.tasks, 0, &scheduler::TraceTask::limit_ns)},
      {"left_out", trace.left_out},
      {"preemptions", run.preemptions},
      {"lost_node_hours", run.lost_node_hours},
      {"greedy_gap", run.greedy_gap},
      {"hours", run.hours}};
  const auto seconds = [](double s) { return format_duration(static_cast<int64_t>(s) * kSecond); };
  auto table = out.table({{"WHAT"}, {"VALUE", Align::right}});
  table.row({"nodes", format_count(options.nodes)});
  table.row({"tasks", format_count(trace.tasks.size())});
  table.row({"finished", format_count(run.finished)});
  table.row({"larger than the cluster", format_count(run.never)});
  table.row({"simulated time", seconds(run.hours * 3600)});
  table.row({"utilisation, while tasks waited", fmt::format("{:.2f} %", run.utilization * 100)});
  table.row({"saving and loading", fmt::format("{:.2f} %", run.overhead * 100)});
  table.row({"wait for the first start, p50", seconds(run.wait_s_p50)});
  table.row({"wait for the first start, p99", seconds(run.wait_s_p99)});
  if (run.wide > 0) {
    table.row({"tasks wider than a zone", format_count(run.wide)});
    table.row({"wait of tasks wider than a zone, p50", seconds(run.wide_wait_s_p50)});
  }
  table.row({"preemptions", format_count(run.preemptions)});
  table.row({"lost node-hours", fmt::format("{:.1f}", run.lost_node_hours)});
  table.row({"decisions", format_count(run.passes)});
  table.row({"a decision, p50", fmt::format("{:.2f} ms", run.pass_ms_p50)});
  table.row({"a decision, p99", fmt::format("{:.2f} ms", run.pass_ms_p99)});
  table.row({"a decision, slowest", fmt::format("{:.2f} ms", run.pass_ms_max)});
  out.data(std::move(data));
}

void warn_of_missing_limits(Output& out, const scheduler::Trace& trace) {
  const auto missing = std::ranges::count(trace.tasks, 0, &scheduler::TraceTask::limit_ns);
  if (missing == 0) return;
  out.warn(
      "{} of {} tasks request no time: the simulation takes them as tasks without --time, whose "
      "end "
      "the scheduler does not know, so it cannot fill gaps with them; utilisation and waits are "
      "worse than with requested times. Add limit_s to each line of JSON, or the requested time "
      "(field 9) in the Standard Workload Format",
      missing, trace.tasks.size());
}

Result<void> run_simulate(Session& session, const SimulateOptions& options) {
  FF_TRY(check_simulation(options));
  scheduler::Trace trace;
  if (options.trace) {
    FF_TRY(trace, read_trace(options));
  } else {
    SeededRng rng(options.seed);
    const uint64_t tasks = options.tasks.value_or(5000);
    trace = scheduler::synthetic_trace(rng, tasks, static_cast<uint32_t>(options.nodes));
  }
  const scheduler::SimulatedCluster cluster{
      .nodes = static_cast<uint32_t>(options.nodes),
      .zones = static_cast<uint32_t>(options.zones),
      .leaf_nodes = static_cast<uint32_t>(options.leaf_nodes),
      .pass_every_ns = options.pass_every_ns,
      .save_ns = options.save_ns,
      .load_ns = options.load_ns,
      .checkpoint_every_ns = options.checkpoint_every_ns,
      .answering = static_cast<double>(options.answering_percent) / 100};
  FF_TRY(const auto run,
         scheduler::simulate(cluster, trace, options.seed, session.stop.clock(), session.stop));
  tell_trace(session.out, options, trace, run);
  warn_of_missing_limits(session.out, trace);
  if (run.never > 0) {
    session.out.warn("{} tasks need more than {} nodes; the simulation skipped them", run.never,
                     options.nodes);
  }
  return {};
}

}  // namespace

void declare_schedule_simulate(Command& simulate) {
  auto& options = simulate.keep<SimulateOptions>();
  simulate.about(
      "Runs the decisions of the scheduler over a trace of tasks in virtual time. Prints the "
      "utilisation of the nodes, the waiting times of tasks, the cost of preemptions, and the time "
      "of a decision on this machine. Utilisation covers the time while any task waits; the time "
      "for saving and loading does not count as used.\n\nA trace is in the Standard Workload "
      "Format, or has one JSON object per line:\n  {\"submit_s\": 0, \"nodes\": 4, \"run_s\": "
      "3600, \"limit_s\": 7200, \"priority\": 30, \"user\": \"ada\"}\nwhere nodes and run_s are "
      "required. limit_s is the time that the user requests (--time of 'ff schedule submit'): "
      "without it the scheduler cannot fill gaps. Without a trace, ff generates tasks: all are "
      "submitted at the start, use one node "
      "up to an eighth of the nodes, and run ten minutes to a day.");
  simulate.option("--nodes", number(options.nodes), "Number of nodes");
  simulate.option("--zones", number(options.zones), "Number of zones of equal size");
  simulate.option("--leaf", number(options.leaf_nodes), "Nodes per leaf switch");
  simulate.option("--trace", file(options.trace),
                  "File with the trace; without it ff generates tasks");
  simulate.option("--processors", number(options.processors),
                  "Processors per node, for the Standard Workload Format");
  simulate.option("--tasks", number(options.tasks), "Number of tasks to generate")
      .default_value("5000");
  simulate.option("--seed", number(options.seed), "Seed of the generated tasks");
  simulate.option("--save", duration(options.save_ns),
                  "Time from the request to stop until a task has exited");
  simulate.option("--load", duration(options.load_ns),
                  "Time that a preempted task needs to load before it continues");
  simulate.option("--answering", number(options.answering_percent, "PERCENT"),
                  "Share of tasks that save when they are asked to stop");
  simulate.option("--checkpoint-every", duration(options.checkpoint_every_ns),
                  "How often the other tasks save");
  simulate.option("--pass-every", duration(options.pass_every_ns),
                  "Minimum time between decisions");
  simulate.example("ff schedule simulate --nodes 10000 --tasks 15000", "a large, busy cluster");
  simulate.example("ff schedule simulate --nodes 128 --processors 8 --trace SDSC-SP2.swf",
                   "a trace of a real cluster");
  simulate.run([&options](Session& session) { return run_simulate(session, options); });
}

}  // namespace ff::cmd
