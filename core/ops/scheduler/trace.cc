// trace.cc: parses traces, and generates a synthetic one.
#include "ops/scheduler/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "platform/base/text.h"

namespace ff::scheduler {

namespace {

constexpr double kSecondsMax = 100.0 * 365 * 86400;
constexpr size_t kSwfFields = 18;
constexpr uint64_t kTraceNodesMax = 1'000'000;

void in_order(Trace& trace) { std::ranges::stable_sort(trace.tasks, {}, &TraceTask::submit_ns); }

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(std::clamp(seconds, 0.0, kSecondsMax) * 1e9);
}

// The numbers of a line; fewer than the fields if one is malformed.
std::vector<double> numbers_of(std::string_view line) {
  std::vector<double> numbers;
  for (;;) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) return numbers;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    double number = 0;
    const auto [at, error] = std::from_chars(line.data(), line.data() + end, number);
    if (error != std::errc() || at != line.data() + end || !std::isfinite(number)) return {};
    numbers.push_back(number);
    line.remove_prefix(end);
  }
}

// Calls `each` with every line and its number, until it returns an error.
template <class Each>
Result<void> lines_of(std::string_view text, Each each) {
  for (size_t number = 1; !text.empty(); number++) {
    const size_t end = std::min(text.find('\n'), text.size());
    FF_TRY(each(text.substr(0, end), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Result<TraceTask> task_of(const nlohmann::json& json, StringInterner& users) {
  TraceTask task;
  for (const auto& [key, value] : json.items()) {
    const bool is_number = value.is_number();
    if (key == "user" && value.is_string()) {
      task.user = users.id(value.get<std::string>());
    } else if (key == "nodes" && value.is_number_unsigned() &&
               value.get<uint64_t>() <= kTraceNodesMax) {
      task.nodes = value.get<uint32_t>();
    } else if (key == "priority" && value.is_number_unsigned()) {
      const auto level = priority_level(value.get<uint32_t>());
      if (!level) return fail(Errc::usage, "the priority must be 0, 10, 20, 30, 40 or 50");
      task.level = *level;
    } else if (key == "submit_s" && is_number) {
      task.submit_ns = nanoseconds(value.get<double>());
    } else if (key == "run_s" && is_number) {
      task.run_ns = nanoseconds(value.get<double>());
    } else if (key == "limit_s" && is_number) {
      task.limit_ns = nanoseconds(value.get<double>());
    } else {
      return fail(Errc::usage, "'{}' is unknown, or its value has the wrong type", printable(key));
    }
  }
  if (!json.contains("nodes") || !json.contains("run_s")) {
    return fail(Errc::usage, "a task needs nodes and run_s");
  }
  return task;
}

}  // namespace

Result<Trace> parse_swf(std::string_view text, uint32_t processors_per_node) {
  Trace trace;
  const auto each = [&](std::string_view line, size_t number) -> Result<void> {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == ';') return {};
    const std::vector<double> fields = numbers_of(line);
    if (fields.size() != kSwfFields) {
      return fail(Errc::usage, "line {}: not the {} numbers of the Standard Workload Format",
                  number, kSwfFields);
    }
    const double processors = fields[4] > 0 ? fields[4] : fields[7];
    const double nodes = std::ceil(processors / processors_per_node);
    if (fields[3] <= 0 || nodes < 1 || nodes > kTraceNodesMax) {
      trace.left_out++;
      return {};
    }
    TraceTask task{.submit_ns = nanoseconds(fields[1]), .run_ns = nanoseconds(fields[3])};
    task.nodes = static_cast<uint32_t>(nodes);
    if (fields[8] > 0) task.limit_ns = nanoseconds(std::max(fields[8], fields[3]));
    task.user = static_cast<uint32_t>(std::clamp(fields[11], 0.0, 1e9));
    trace.tasks.push_back(task);
    return {};
  };
  FF_TRY(lines_of(text, each));
  in_order(trace);
  return trace;
}

Result<Trace> parse_trace_lines(std::string_view text) {
  Trace trace;
  StringInterner users;
  const auto each = [&](std::string_view line, size_t number) -> Result<void> {
    if (line.find_first_not_of(" \t\r") == line.npos) return {};
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return fail(Errc::usage, "line {}: not a JSON object", number);
    auto task = task_of(json, users);
    if (!task) return std::move(task).error().with_context(fmt::format("line {}: ", number));
    if (task->nodes == 0 || task->run_ns == 0) {
      trace.left_out++;
    } else {
      trace.tasks.push_back(*task);
    }
    return {};
  };
  FF_TRY(lines_of(text, each));
  in_order(trace);
  return trace;
}

Trace synthetic_trace(Rng& rng, uint64_t tasks, uint32_t nodes) {
  constexpr std::array<PriorityLevel, 10> kMix = {0, 1, 1, 2, 2, 3, 3, 3, 4, 5};
  constexpr uint64_t kUsers = 50;
  const double sizes = std::max(1.0, std::log2(std::max(nodes / 8, 1u)) + 1);
  Trace trace;
  for (uint64_t i = 0; i < tasks; i++) {
    TraceTask task;
    // Half of the gangs are small; of the others each power of two is equally frequent.
    const double power = rng.below(2) == 0 ? 0 : std::floor(rng.uniform01() * sizes);
    task.nodes = std::min(static_cast<uint32_t>(std::exp2(power)), std::max(nodes / 8, 1u));
    const double seconds = 600 * std::pow(144, rng.uniform01());  // ten minutes to a day
    task.run_ns = nanoseconds(seconds);
    // Users request more time than they need.
    task.limit_ns = nanoseconds(seconds * (1.1 + rng.uniform01()));
    task.user = static_cast<uint32_t>(rng.below(kUsers));
    task.level = kMix[rng.below(kMix.size())];
    trace.tasks.push_back(task);
  }
  return trace;
}

}  // namespace ff::scheduler
