// ff_task.cc: what a task does with $FF_TASK_DIR, behind the C interface.
#include <cstring>
#include <optional>

#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "training/bindings/ff.h"
#include "training/bindings/last_error.h"
#include "training/task/task_side.h"

using ff::Errc;
using ff::Result;
using ff::bindings::failed;
using ff::bindings::outcome;
using ff::task::TaskSide;

namespace {

// Straight from the kernel: threads and children that call at once never get the same number.
class KernelRng final : public ff::Rng {
 public:
  uint64_t next() override { return ff::system_seed(); }
};

// The task that this process is in, for one call.
class Here {
 public:
  Here() {
    if (auto dir = ff::task::dir_of_environment()) side_.emplace(disk_, rng_, std::move(*dir));
  }
  TaskSide* task() { return side_ ? &*side_ : nullptr; }

 private:
  ff::io::SystemDisk disk_ = {};
  KernelRng rng_ = {};
  std::optional<TaskSide> side_ = {};
};

static_assert(sizeof(ff_stop::reason) == ff::task::kReasonMost + 1);

}  // namespace

int ff_task_should_stop(ff_stop* stop) {
  Here here;
  if (here.task() == nullptr) return 0;
  const auto request = here.task()->should_stop();
  if (!request) return 0;
  if (stop != nullptr) {
    *stop = {.reason = {}, .deadline = request->deadline_s};
    std::memcpy(stop->reason, request->reason.data(), request->reason.size());
  }
  return 1;
}

int ff_task_saved(uint64_t step) {
  Here here;
  return here.task() != nullptr ? outcome(here.task()->saved(step)) : FF_OK;
}

int ff_task_heartbeat(uint32_t rank, uint64_t step) {
  Here here;
  if (here.task() == nullptr) return FF_OK;
  return outcome(here.task()->heartbeat({.rank = rank, .step = step}));
}

int ff_task_life_state(uint32_t* word) {
  if (word == nullptr) return failed(ff::fail(Errc::usage, "no place for the word"));
  *word = 0;
  Here here;
  if (here.task() == nullptr) return FF_OK;
  const auto known = here.task()->life_state();
  if (!known) return failed(known.error());
  *word = *known;
  return FF_OK;
}

int ff_task_set_life_state(uint32_t word) {
  Here here;
  return here.task() != nullptr ? outcome(here.task()->set_life_state(word)) : FF_OK;
}
