// The scenario of meta/ and client/: programs on several machines use one file system, while
// metadata services, storage nodes, disks, power and links fail.
//
// Invariants: namespace operations are linearizable; after close() every program reads what was
// written; each appended record exists exactly once and complete; when the system is idle, fsck
// finds no problems in metadata and storage.
#pragma once

#include <cstdint>

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_files(uint64_t seed);

}  // namespace ff::scenario
