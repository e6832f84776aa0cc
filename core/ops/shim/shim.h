// The process that stands between an agent and one rank of a task: it starts the rank, holds the
// pipe that the rank prints into, carries out the agent's orders, waits until nothing of the rank
// is left, and writes down how it ended. The agent may be killed, replaced or started again
// meanwhile; neither the rank nor its log nor its exit status depends on it.
//
// All descendants of the rank are the shim's own, however often they fork and whatever session they
// lead, since the kernel gives a subreaper the orphans below it: when it has no child any more, all
// of them are gone. What lives on when the rank's first process has ended is asked to end, and
// killed kGraceNs later: nothing of an attempt runs into the next one.
#pragma once

#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

// What is left behind by a rank that has ended gets so long between SIGTERM and SIGKILL.
constexpr int64_t kGraceNs = 5 * kSecond;

// The whole life of a shim, in a process of its own with one thread. `dir`: its folder (0700), in
// which launch.json is. Errors that no file can tell: refused (another shim has this folder, or had
// it before), or those of the folder itself. All others are in `exit`, and here.
//
// SIGTERM to the shim is the order to terminate.
Result<void> run_shim(io::Disk& disk, Clock& clock, const std::string& dir);

}  // namespace ff::shim
