// One attempt of a task at a time writes into a run: a scheduler starts a task again where it
// cannot reach the node that had it, and what may still run there must not publish any more.
//
//   STORE/runs/RUN/tasks/SCHEDULER-TASK-ATTEMPT   an empty file: this attempt saves here
//
// An attempt makes its mark before it saves; whoever then finds a later one of its task is over.
// Marks are made, and never changed, so no two attempts can undo each other's.
#pragma once

#include "training/checkpoint/format/store.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Before anything is stored. Errc::refused: a later attempt of the task has saved into this run.
Result<void> enter_run(io::Disk& disk, const Store& store, const std::string& run,
                       const TaskAttempt& attempt);
// Before anything is published. The same error.
Result<void> check_attempt(io::Disk& disk, const Store& store, const std::string& run,
                           const TaskAttempt& attempt);

}  // namespace ff::checkpoint
