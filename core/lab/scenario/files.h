// The story of meta/ and client/: programs use one file system from several machines, while
// metadata services, storage nodes, disks, power and links fail.
//
// Names are linearizable; a file that was closed reads as it was written, by everybody; appended
// records are there once, whole; and when all is quiet fsck finds nothing, in names or in storage.
#pragma once

#include <cstdint>

#include "lab/scenario/story.h"

namespace ff::scenario {

Result<Outcome> run_files(uint64_t seed);

}  // namespace ff::scenario
