// Who saves: the user and host that an index records, and the try of a job that ranks share.
#pragma once

#include <string>
#include <string_view>

#include "platform/io/disk.h"
#include "training/checkpoint/save/save_request.h"

namespace ff::checkpoint {

// Of this process, and of the attempt of a task that it is in ($FF_TASK_OF, $FF_TASK,
// $FF_TASK_ATTEMPT, of ff schedule). The user's name is what /etc/passwd calls it (a static program
// cannot load the name service's modules), else "uid-N".
Identity identity_of(io::Disk& disk, std::string host, std::string ff_version);

// What all ranks of one try of a job have in common (SaveOptions::attempt), as the environment
// tells it: FF_ATTEMPT, else the attempt of the task, torchrun's run id and restart count, as far
// as there are any. Empty: it tells nothing.
std::string attempt_of_environment();

}  // namespace ff::checkpoint
