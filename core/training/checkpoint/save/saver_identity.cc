// saver_identity.cc: the user and the environment variables of a job's ranks.
#include "training/checkpoint/save/saver_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kPasswdMax = 16 * kMiB;
// The run id that torchrun sets without --rdzv-id: all jobs have it in common.
constexpr std::string_view kNoRunId = "none";

std::string user_name(io::Disk& disk, uint32_t uid) {
  const auto passwd = io::read_file(disk, "/etc/passwd", kPasswdMax);
  std::string_view rest = passwd ? std::string_view(*passwd) : std::string_view();
  const std::string id = std::to_string(uid);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t name_end = line.find(':');
    const size_t password_end = name_end == line.npos ? line.npos : line.find(':', name_end + 1);
    if (password_end == line.npos) continue;
    if (line.substr(password_end + 1).starts_with(id + ":")) {
      return std::string(line.substr(0, name_end));
    }
  }
  return "uid-" + id;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::optional<TaskAttempt> task_of_environment() {
  const auto scheduler = variable("FF_TASK_OF");
  const auto task = parse_u64(variable("FF_TASK"));
  const auto number = parse_u64(variable("FF_TASK_ATTEMPT"));
  // It becomes part of a file's name.
  if (!check_run_name(scheduler) || !task || !number) return std::nullopt;
  return TaskAttempt{.scheduler = std::string(scheduler), .task = *task, .number = *number};
}

}  // namespace

SaverIdentity saver_identity(io::Disk& disk, std::string host, std::string ff_version) {
  const uint32_t uid = ::geteuid();
  return {.user = user_name(disk, uid),
          .host = std::move(host),
          .uid = uid,
          .ff_version = std::move(ff_version),
          .task = task_of_environment()};
}

std::string attempt_from_environment() {
  if (const auto given = variable("FF_ATTEMPT"); !given.empty()) return std::string(given);
  std::string text;
  if (const auto task = task_of_environment()) {
    text = fmt::format("{}-{}.{}", task->scheduler, task->task, task->number);
  }
  const auto run = variable("TORCHELASTIC_RUN_ID");
  if (run.empty() || (run == kNoRunId && text.empty())) return text;
  const auto restarts = variable("TORCHELASTIC_RESTART_COUNT");
  const std::string_view number = restarts.empty() ? "0" : restarts;
  return fmt::format("{}{}{}.{}", text, text.empty() ? "" : "-", run, number);
}

Result<std::optional<RankOfWorld>> rank_from_environment() {
  const auto rank = variable("RANK");
  const auto world = variable("WORLD_SIZE");
  if (world.empty()) return std::optional<RankOfWorld>();
  const auto rank_number = parse_u64(rank);
  const auto world_number = parse_u64(world);
  if (rank_number && world_number && *world_number <= UINT32_MAX && *rank_number < *world_number) {
    return std::optional(
        RankOfWorld{static_cast<uint32_t>(*rank_number), static_cast<uint32_t>(*world_number)});
  }
  return Error{Errc::usage,
               fmt::format("the environment names no rank: RANK={} WORLD_SIZE={}", printable(rank),
                           printable(world)),
               "Unset both variables, or give --rank and --world (--world 1: one process saves)."};
}

}  // namespace ff::checkpoint
