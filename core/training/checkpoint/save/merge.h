// Merging the shards of several ranks into one index.
#pragma once

#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "training/checkpoint/format/index.h"

namespace ff::checkpoint {

// Reads the shards (in rank order) front to back and writes the merged, synced index to `out`.
// Errors: not_found: a shard is missing; failed when slices of one tensor do not fit together
// (type, shape, a rank without it); corrupt.
Result<EndRecord> merge_shards(io::Disk& disk, const std::vector<std::string>& shards,
                               const std::string& out);

}  // namespace ff::checkpoint
