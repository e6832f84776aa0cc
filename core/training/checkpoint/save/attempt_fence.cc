// attempt_fence.cc: marks of attempts.
#include "training/checkpoint/save/attempt_fence.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::checkpoint {
namespace {

std::string task_text(const TaskAttempt& attempt) {
  return fmt::format("{}-{}-", attempt.scheduler, attempt.task);
}

// The attempts of this task that have registered.
Result<std::vector<uint64_t>> attempts_in(io::Disk& disk, const std::string& dir,
                                          const TaskAttempt& attempt) {
  FF_TRY(const auto marks, disk.list(dir));
  const std::string task = task_text(attempt);
  std::vector<uint64_t> numbers;
  for (const io::DirEntry& mark : marks) {
    if (!mark.name.starts_with(task)) continue;
    const auto number = parse_u64(std::string_view(mark.name).substr(task.size()));
    if (number) numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

Result<void> register_attempt(io::Disk& disk, const Store& store, const std::string& run,
                              const TaskAttempt& attempt) {
  const std::string dir = store.tasks_dir(run);
  const auto path_of = [&](uint64_t number) {
    return fmt::format("{}/{}{}", dir, task_text(attempt), number);
  };
  FF_TRY(io::make_dirs(disk, dir));
  FF_TRY(check_attempt(disk, store, run, attempt));
  auto made = disk.open(path_of(attempt.number),
                        {.access = io::AccessMode::write, .create = true, .exclusive = true});
  if (made) FF_TRY(disk.sync_dir(dir));
  if (!made && made.error().code != Errc::exists) return std::move(made).error();
  if (!made) return {};
  // A later attempt may have registered meanwhile.
  FF_TRY(check_attempt(disk, store, run, attempt));
  // Remove the marks of earlier attempts. The mark of a later one stays.
  FF_TRY(const auto numbers, attempts_in(disk, dir, attempt));
  for (const uint64_t number : numbers) {
    if (number < attempt.number) (void)disk.remove(path_of(number));
  }
  return {};
}

Result<void> check_attempt(io::Disk& disk, const Store& store, const std::string& run,
                           const TaskAttempt& attempt) {
  FF_TRY(const auto numbers, attempts_in(disk, store.tasks_dir(run), attempt));
  const uint64_t latest = numbers.empty() ? 0 : *std::ranges::max_element(numbers);
  if (latest <= attempt.number) return {};
  return Error{
      Errc::refused,
      fmt::format("run {}: attempt {} of task {} saves there, but this is attempt {}", run, latest,
                  attempt.task, attempt.number),
      "The scheduler has started the task again: this attempt is over. Its earlier checkpoints "
      "stay."};
}

}  // namespace ff::checkpoint
