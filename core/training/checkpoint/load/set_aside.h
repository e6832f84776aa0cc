// Moves damaged chunk files aside, so that the next save of the same data writes them again.
#pragma once

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// Whether the chunk file at `path` is readable and intact, digest included. Errc::not_found.
Result<bool> chunk_file_is_intact(io::Disk& disk, const std::string& path,
                                  const simd::Digest& chunk);

// Reads the chunk again, in chunks/ or trash/, and moves its file to set_aside_path() if it is
// damaged. A saver that writes the chunk meanwhile keeps its new file. False: the chunk is intact
// or missing.
Result<bool> set_chunk_aside(io::Disk& disk, const Store& store, const simd::Digest& chunk);

}  // namespace ff::checkpoint
