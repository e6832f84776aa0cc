// task_side.cc: a task's folder as the task uses it.
#include "training/task/task_side.h"

#include <cstdlib>

namespace ff::task {

std::optional<std::string> dir_of_environment() {
  const char* dir = std::getenv("FF_TASK_DIR");
  if (dir == nullptr || *dir == '\0') return std::nullopt;
  return std::string(dir);
}

std::optional<StopRequest> TaskSide::should_stop() {
  const std::string stop = path(kStop);
  if (!disk_.info(stop)) return std::nullopt;
  const Fact fact = read_fact(disk_, stop);
  if (!fact.line) return std::nullopt;
  auto request = parse_stop(*fact.line);
  if (request && !has_file(disk_, path(kAck))) (void)write(kAck, "seen");
  return request;
}

Result<void> TaskSide::saved(uint64_t step) { return write(kSaved, fmt::to_string(step)); }

Result<void> TaskSide::heartbeat(const Beat& beat) {
  return write(heartbeat_name(beat.rank), fmt::to_string(beat.step));
}

Result<uint32_t> TaskSide::life_state() {
  const Fact fact = read_fact(disk_, path(kLifeState));
  if (!fact.line && fact.ignored.empty()) return 0;
  if (const auto word = parse_life_state(fact.line.value_or(""))) return *word;
  const std::string why = fact.line ? path(kLifeState) + ": not a number of 32 bits" : fact.ignored;
  return Error{Errc::corrupt, why, "Write a decimal number and a newline to it, or remove it."};
}

Result<void> TaskSide::set_life_state(uint32_t word) {
  return write(kLifeState, fmt::to_string(word));
}

Result<void> TaskSide::write(std::string_view name, std::string_view line) {
  const std::string unfinished = unfinished_name(rng_, dir_, name);
  auto written = write_line(disk_, unfinished, line);
  if (written) {
    written = disk_.rename(unfinished, path(name));
    if (!written) (void)disk_.remove(unfinished);
  }
  if (written) return {};
  Error error = std::move(written).error().within(fmt::format("'{}' of the task: ", name));
  if (error.hint.empty()) {
    error.hint =
        "FF_TASK_DIR names the folder that this node's agent has made for the task; unset it "
        "outside of tasks.";
  }
  return error;
}

}  // namespace ff::task
