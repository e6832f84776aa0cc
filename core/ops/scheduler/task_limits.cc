// task_limits.cc: sizes of records in memory, and the errors that name a limit.
#include "ops/scheduler/task_limits.h"

#include <algorithm>

#include "platform/base/bytes.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {
namespace {

// Descriptions differ: a user may have the largest number of tasks of this average size.
constexpr uint64_t kDescriptionBytes = 16 * kKiB;
constexpr uint64_t kHistoryBytes = 4 * kKiB;  // of a finished task, on average
constexpr uint64_t kBytesLeast = 4 * kMiB;    // the largest single task fits
constexpr uint64_t kAdminPercent = 10;        // of all, for operators only
// Besides its bytes, each word takes a string and a pointer to it.
constexpr uint64_t kWordBytes = sizeof(std::string) + sizeof(void*);

uint64_t share_of_users(uint64_t all) { return all - all * kAdminPercent / 100; }

uint64_t spec_words(const wire::Spec& spec) {
  return static_cast<uint64_t>(spec.argv_size()) + static_cast<uint64_t>(spec.env_size()) +
         static_cast<uint64_t>(spec.marks_size());
}

std::string user_text(const wire::Owner& owner) {
  return fmt::format("user {} (uid {})", printable(owner.name()), owner.uid());
}

std::string wait_or_stop(std::string_view option) {
  return fmt::format(
      "Wait until some of them end, or stop some ('ff schedule list', 'ff schedule stop'). The "
      "operator sets the limit with {} of 'ff schedule serve'.",
      option);
}

std::string fewer_variables(std::string_view option) {
  return fmt::format(
      "Submit with fewer variables (--no-inherit), or wait until some of these tasks end. The "
      "limit "
      "grows with {} of 'ff schedule serve'.",
      option);
}

constexpr std::string_view kUserOption = "--max-user-tasks";
constexpr std::string_view kAllOption = "--max-tasks";

}  // namespace

uint64_t TaskLimits::description_bytes_max(size_t tasks) {
  return std::max(kBytesLeast, tasks * kDescriptionBytes);
}

uint64_t history_bytes_max(size_t finished_tasks) {
  const uint64_t counted = std::min<uint64_t>(finished_tasks, UINT64_MAX / kHistoryBytes);
  return std::max(kBytesLeast, counted * kHistoryBytes);
}

uint64_t description_bytes(const wire::Task& task) {
  return task.spec().ByteSizeLong() + task.owner().ByteSizeLong() +
         spec_words(task.spec()) * kWordBytes;
}

uint64_t record_bytes(const wire::Task& task) {
  uint64_t words = spec_words(task.spec());
  for (const wire::Attempt& one : task.attempts()) {
    words += static_cast<uint64_t>(one.nodes_size());
  }
  return task.ByteSizeLong() + words * kWordBytes;
}

Result<void> TaskUsage::check_user(const wire::Task& task, uint64_t bytes) const {
  const auto found = users_.find(task.owner().uid());
  const Usage usage = found == users_.end() ? Usage() : found->second;
  if (usage.tasks >= limits_.tasks_per_user) {
    Error error = fail(Errc::busy, "{} has {} unfinished tasks; the limit per user is {}",
                       user_text(task.owner()), usage.tasks, limits_.tasks_per_user);
    error.hint = wait_or_stop(kUserOption);
    return error;
  }
  if (usage.bytes + bytes > limits_.bytes_per_user()) {
    Error error =
        fail(Errc::busy,
             "{} has unfinished tasks with {} of commands and environments, and this task adds {}; "
             "the limit per user is {}",
             user_text(task.owner()), format_size(usage.bytes), format_size(bytes),
             format_size(limits_.bytes_per_user()));
    error.hint = fewer_variables(kUserOption);
    return error;
  }
  return {};
}

Result<void> TaskUsage::check(const wire::Task& task, SubmittedBy by) const {
  const uint64_t bytes = description_bytes(task);
  const bool is_user = by == SubmittedBy::user;
  if (is_user) FF_TRY(check_user(task, bytes));
  const std::string kept = is_user ? ", of which a tenth is kept for operators" : "";
  if (all_.tasks >= (is_user ? share_of_users(limits_.tasks) : limits_.tasks)) {
    Error error = fail(Errc::busy,
                       "no room for a task of {}: all users together have {} unfinished tasks; the "
                       "limit is {}{}",
                       user_text(task.owner()), all_.tasks, limits_.tasks, kept);
    error.hint = wait_or_stop(kAllOption);
    return error;
  }
  if (all_.bytes + bytes > (is_user ? share_of_users(limits_.bytes()) : limits_.bytes())) {
    Error error =
        fail(Errc::busy,
             "no room for a task of {} with {}: the unfinished tasks of all users have {} "
             "of commands and environments; the limit is {}{}",
             user_text(task.owner()), format_size(bytes), format_size(all_.bytes),
             format_size(limits_.bytes()), kept);
    error.hint = fewer_variables(kAllOption);
    return error;
  }
  return {};
}

void TaskUsage::add(const wire::Task& task) {
  const uint64_t bytes = description_bytes(task);
  for (Usage* const usage : {&all_, &users_[task.owner().uid()]}) {
    usage->tasks++;
    usage->bytes += bytes;
  }
}

void TaskUsage::remove(const wire::Task& task) {
  const auto user = users_.find(task.owner().uid());
  if (user == users_.end()) return;
  const uint64_t bytes = description_bytes(task);
  for (Usage* const usage : {&all_, &user->second}) {
    usage->tasks--;
    usage->bytes -= bytes;
  }
  if (user->second.tasks == 0) users_.erase(user);
}

}  // namespace ff::scheduler
