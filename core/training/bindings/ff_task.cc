// ff_task.cc: the task client ($FF_TASK_DIR) behind the C interface.
#include <cstring>
#include <optional>

#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "training/bindings/ff.h"
#include "training/bindings/last_error.h"
#include "training/task/task_client.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;
using ff::task::TaskClient;

namespace {

// Random numbers of the kernel: concurrent threads and child processes never get the same number.
class KernelRng final : public ff::Rng {
 public:
  uint64_t next() override { return ff::system_seed(); }
};

// The task of this process, for one call.
class CurrentTask {
 public:
  CurrentTask() {
    if (auto dir = ff::task::task_dir_from_environment())
      client_.emplace(disk_, rng_, std::move(*dir));
  }
  TaskClient* task() { return client_ ? &*client_ : nullptr; }

 private:
  ff::io::SystemDisk disk_ = {};
  KernelRng rng_ = {};
  std::optional<TaskClient> client_ = {};
};

static_assert(sizeof(ff_stop::reason) == ff::task::kReasonMax + 1);

}  // namespace

int ff_task_should_stop(ff_stop* stop) {
  CurrentTask current;
  if (current.task() == nullptr) return 0;
  const auto request = current.task()->should_stop();
  if (!request) return 0;
  if (stop != nullptr) {
    *stop = {.reason = {}, .deadline = request->deadline_s};
    std::memcpy(stop->reason, request->reason.data(), request->reason.size());
  }
  return 1;
}

int ff_task_saved(uint64_t step) {
  CurrentTask current;
  return current.task() != nullptr ? outcome(current.task()->saved(step)) : FF_OK;
}

int ff_task_heartbeat(uint32_t rank, uint64_t step) {
  CurrentTask current;
  if (current.task() == nullptr) return FF_OK;
  return outcome(current.task()->heartbeat({.rank = rank, .step = step}));
}

int ff_task_life_state(uint32_t* word) {
  if (word == nullptr) return failed(ff::fail(Errc::usage, "word is null"));
  *word = 0;
  CurrentTask current;
  if (current.task() == nullptr) return FF_OK;
  const auto known = current.task()->life_state();
  if (!known) return failed(known.error());
  *word = *known;
  return FF_OK;
}

int ff_task_set_life_state(uint32_t word) {
  CurrentTask current;
  return current.task() != nullptr ? outcome(current.task()->set_life_state(word)) : FF_OK;
}
