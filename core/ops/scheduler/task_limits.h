// Limits on the tasks that the scheduler holds, so that no user can fill its memory and its store.
//
// A user's share limits what the user submits with a token. A caller that may act for any user is
// an operator: only the limits of the whole scheduler apply to it, and only operators may use the
// last tenth of these. A description is a command with its environment, counted as it lies in
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "ops/scheduler/scheduler.pb.h"
#include "platform/base/result.h"

namespace ff::scheduler {

enum class SubmittedBy : uint8_t { user, admin };

struct TaskLimits {
  size_t tasks = 10'000;          // unfinished tasks of all users
  size_t tasks_per_user = 1'000;  // unfinished tasks

  // Of the descriptions of unfinished tasks.
  uint64_t bytes() const { return description_bytes_max(tasks); }
  uint64_t bytes_per_user() const { return description_bytes_max(tasks_per_user); }
  static uint64_t description_bytes_max(size_t tasks);
};
// Of the records of finished tasks, where so many are remembered.
uint64_t history_bytes_max(size_t finished_tasks);

// Memory of the description of a task; constant while the task exists.
uint64_t description_bytes(const wire::Task& task);
// Memory of the whole record of a task.
uint64_t record_bytes(const wire::Task& task);

// What the unfinished tasks take, by user.
class TaskUsage {
 public:
  explicit TaskUsage(TaskLimits limits) : limits_(limits) {}

  // Errc::busy: the task would exceed a limit. The error names the user, the limit, what is there,
  // and the next step.
  Result<void> check(const wire::Task& task, SubmittedBy by) const;
  void add(const wire::Task& task);
  void remove(const wire::Task& task);

 private:
  struct Usage {
    size_t tasks = 0;
    uint64_t bytes = 0;
  };
  Result<void> check_user(const wire::Task& task, uint64_t bytes) const;

  const TaskLimits limits_;
  Usage all_;
  std::map<uint32_t, Usage> users_;  // by uid
};

}  // namespace ff::scheduler
