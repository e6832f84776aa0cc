// task_client.cc: files written under a temporary name, then renamed.
#include "training/task/task_client.h"

#include <cstdlib>

namespace ff::task {

std::optional<std::string> task_dir_from_environment() {
  const char* dir = std::getenv("FF_TASK_DIR");
  if (dir == nullptr || *dir == '\0') return std::nullopt;
  return std::string(dir);
}

std::optional<StopRequest> TaskClient::should_stop() {
  const std::string stop = path(kStop);
  if (!disk_.info(stop)) return std::nullopt;
  const TaskFile file = read_task_file(disk_, stop);
  if (!file.line) return std::nullopt;
  auto request = parse_stop(*file.line);
  if (request && !is_regular_file(disk_, path(kAck))) (void)write(kAck, "seen");
  return request;
}

Result<void> TaskClient::saved(uint64_t step) { return write(kSaved, fmt::to_string(step)); }

Result<void> TaskClient::heartbeat(const HeartbeatUpdate& update) {
  return write(heartbeat_name(update.rank), fmt::to_string(update.step));
}

Result<uint32_t> TaskClient::life_state() {
  const TaskFile file = read_task_file(disk_, path(kLifeState));
  if (!file.line && file.ignored.empty()) return 0;
  if (const auto value = parse_life_state(file.line.value_or(""))) return *value;
  const std::string reason = file.line ? path(kLifeState) + ": not a 32-bit number" : file.ignored;
  return Error{Errc::corrupt, reason, "Write a decimal number and a newline to it, or remove it."};
}

Result<void> TaskClient::set_life_state(uint32_t value) {
  return write(kLifeState, fmt::to_string(value));
}

Result<void> TaskClient::write(std::string_view name, std::string_view line) {
  const std::string temporary = temporary_name(rng_, dir_, name);
  auto written = write_line(disk_, temporary, line);
  if (written) {
    written = disk_.rename(temporary, path(name));
    if (!written) (void)disk_.remove(temporary);
  }
  if (written) return {};
  Error error = std::move(written).error().with_context(fmt::format("'{}' of the task: ", name));
  if (error.hint.empty()) {
    error.hint =
        "FF_TASK_DIR must be the directory that this node's agent has created for the task; unset "
        "it "
        "outside of tasks.";
  }
  return error;
}

}  // namespace ff::task
