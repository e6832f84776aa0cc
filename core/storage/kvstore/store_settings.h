// The file `store` in the folder of a store, which never changes, and where its partitions are.
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::kvstore {

struct StoreSettings {
  uint32_t partitions = 0;
  std::string secret = {};  // of hashes (hash_key())
};

// Reads the file; creates it first, for `partitions`, unless it is there. Errc::newer_format,
// Errc::corrupt.
Result<StoreSettings> make_settings(io::Disk& disk, Rng& rng, const std::string& folder,
                                    uint32_t partitions);
// Likewise, of a store that is there. Errc::not_found: it is not.
Result<StoreSettings> read_settings(io::Disk& disk, const std::string& folder);

// `redis_slot`: as redis_slot() computes it.
uint32_t partition_of_slot(uint32_t redis_slot, uint32_t partitions);
// The first of Redis's slots of a partition.
uint32_t first_slot(uint32_t partition, uint32_t partitions);

std::string partition_dir(const std::string& folder, uint32_t partition);
// Of heartbeats (claim.h).
std::string members_dir(const std::string& folder);

}  // namespace ff::kvstore
