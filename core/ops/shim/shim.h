// The shim: the process between an agent and one rank of a task. It starts the rank, reads its
// output, executes orders of the agent, waits until no process of the rank is left, and records how
// it ended. The agent may be killed, replaced or restarted meanwhile; neither the rank nor its log
// nor its exit status depends on it.
//
// The shim is a subreaper, so the kernel makes all orphaned descendants of the rank its children,
// whatever session they lead: when it has no child, all are gone. Descendants that are still
// running when the first process of the rank has exited get SIGTERM, and kGraceNs later SIGKILL: no
// process of an attempt survives into the next one.
#pragma once

#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

// Time between SIGTERM and SIGKILL for descendants of an exited rank.
constexpr int64_t kGraceNs = 5 * kSecond;

// Runs a shim, in a process of its own with one thread. `dir`: its folder (0700) with launch.json.
// Errors that no file records: refused (another shim uses or has used this folder), and those of
// the folder itself. All other errors are in `exit` and returned.
//
// SIGTERM to the shim has the effect of order `terminate`.
Result<void> run_shim(io::Disk& disk, Clock& clock, const std::string& dir);

}  // namespace ff::shim
