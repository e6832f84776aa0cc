// Fencing: only the latest attempt of a task may save into a run. When a scheduler cannot reach a
// node, it starts the task again elsewhere; the old attempt may still run and must not publish.
//
//   STORE/runs/RUN/tasks/SCHEDULER-TASK-ATTEMPT   an empty file: this attempt saves into the run
//
// An attempt creates its file before it saves; an attempt that then finds a later one of its task
// is refused. Files are created and never changed, so attempts cannot undo each other.
#pragma once

#include "training/checkpoint/format/store.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Call it before anything is stored. Errc::refused: a later attempt of the task has saved into this
// run.
Result<void> register_attempt(io::Disk& disk, const Store& store, const std::string& run,
                              const TaskAttempt& attempt);
// Call it before anything is published. The same error.
Result<void> check_attempt(io::Disk& disk, const Store& store, const std::string& run,
                           const TaskAttempt& attempt);

}  // namespace ff::checkpoint
