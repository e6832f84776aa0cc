// Two open file descriptions of one file in one client, as a mount has for two programs: each does
// write-behind, sync and close, and unrelated calls. If an fsync succeeds on a description that has
// never reported an error, everything written so far must be readable.
#pragma once

#include "lab/scenario/files_load.h"
#include "storage/client/file_system.h"

namespace ff::scenario::files_parts {

// Creates, uses and removes one file.
Task<void> write_together(client::FileSystem& files, Rng& rng, FilesOracle& oracle);

}  // namespace ff::scenario::files_parts
