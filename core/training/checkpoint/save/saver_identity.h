// The user and host that an index records as its saver, and the attempt that the ranks of a job
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Of this process, with its task attempt under ff schedule ($FF_TASK_OF, $FF_TASK,
// $FF_TASK_ATTEMPT). The user name comes from /etc/passwd (a static program cannot load modules of
// the name service), else it is "uid-N".
SaverIdentity saver_identity(io::Disk& disk, std::string host, std::string ff_version);

// An id that all ranks of one start of a job have in common, and no other start of any job has
// (SaveOptions::attempt), from the environment: FF_ATTEMPT, else the attempt of the task of
// ff schedule and the run id and restart count of torchrun, as far as they are set. Outside of a
// task, "none" is no run id: torchrun sets it for every job that has no --rdzv-id. Empty: the
// environment has no such id.
std::string attempt_from_environment();

// RANK and WORLD_SIZE, which torchrun and ff schedule set; nothing without WORLD_SIZE.
// Errc::usage: they are no rank and its world.
struct RankOfWorld {
  uint32_t rank = 0;
  uint32_t world = 1;
};
Result<std::optional<RankOfWorld>> rank_from_environment();

}  // namespace ff::checkpoint
