// The user and host that an index records as its saver, and the attempt that the ranks of a job
// share.
#pragma once

#include <string>
#include <string_view>

#include "platform/io/disk.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Of this process, with its task attempt under ff schedule ($FF_TASK_OF, $FF_TASK,
// $FF_TASK_ATTEMPT). The user name comes from /etc/passwd (a static program cannot load modules of
// the name service), else it is "uid-N".
SaverIdentity saver_identity(io::Disk& disk, std::string host, std::string ff_version);

// An id that all ranks of one attempt of a job have in common (SaveOptions::attempt), from the
// environment: FF_ATTEMPT, else the task attempt and the run id and restart count of torchrun, as
// far as they are set. Empty: none is set.
std::string attempt_from_environment();

}  // namespace ff::checkpoint
