// A program that has a file open twice, as a mount has it for two programs: each writes behind,
// syncs and closes, and both do what has nothing to do with it. Whoever is told by an fsync that
// all is well, and was never told of an error, must find all that was written.
#pragma once

#include "lab/scenario/files_load.h"
#include "storage/client/file_system.h"

namespace ff::scenario::files_parts {

// One file, from its making to its end.
Task<void> write_together(client::FileSystem& files, Rng& rng, FilesTruth& truth);

}  // namespace ff::scenario::files_parts
