// fence.cc: marks of attempts.
#include "ckpt/fence.h"

#include <fmt/format.h>

#include "base/text.h"
#include "io/files.h"

namespace ff::ckpt {
namespace {

std::string task_text(const TaskAttempt& attempt) {
  return fmt::format("{}-{}-", attempt.scheduler, attempt.task);
}

// Of the marks of this task, the largest number; 0: there is none.
uint64_t latest_of(const std::vector<io::DirEntry>& marks, const TaskAttempt& attempt) {
  const std::string task = task_text(attempt);
  uint64_t latest = 0;
  for (const io::DirEntry& mark : marks) {
    if (!mark.name.starts_with(task)) continue;
    const auto number = parse_u64(std::string_view(mark.name).substr(task.size()));
    if (number) latest = std::max(latest, *number);
  }
  return latest;
}

}  // namespace

Result<void> enter_run(io::Disk& disk, const Store& store, const std::string& run,
                       const TaskAttempt& attempt) {
  const std::string dir = store.tasks_dir(run);
  const std::string name = fmt::format("{}{}", task_text(attempt), attempt.number);
  FF_TRY(io::make_dirs(disk, dir));
  FF_TRY(check_attempt(disk, store, run, attempt));
  auto made = disk.open(io::join(dir, name),
                        {.access = io::Access::write, .create = true, .exclusive = true});
  if (made) FF_TRY(disk.sync_dir(dir));
  if (!made && made.error().code != Errc::exists) return std::move(made).error();
  if (!made) return {};
  // A later one may have come in between.
  FF_TRY(check_attempt(disk, store, run, attempt));
  // Those before it have nothing to say any more.
  FF_TRY(const auto marks, disk.list(dir));
  for (const io::DirEntry& mark : marks) {
    if (mark.name == name || !mark.name.starts_with(task_text(attempt))) continue;
    (void)disk.remove(io::join(dir, mark.name));
  }
  return {};
}

Result<void> check_attempt(io::Disk& disk, const Store& store, const std::string& run,
                           const TaskAttempt& attempt) {
  FF_TRY(const auto marks, disk.list(store.tasks_dir(run)));
  const uint64_t latest = latest_of(marks, attempt);
  if (latest <= attempt.number) return {};
  return Error{Errc::refused,
               fmt::format("run {}: attempt {} of task {} saves there, and this is attempt {}", run,
                           latest, attempt.task, attempt.number),
               "The scheduler has started the task again: this attempt is over. What it has saved "
               "before stays."};
}

}  // namespace ff::ckpt
