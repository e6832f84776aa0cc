// Restores one path from a backup into a store whose records are damaged or lost. Nothing else may
// use the store meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "platform/kv/engine.h"

namespace ff::meta {

struct RestoredName {
  std::vector<std::string> put;     // keys of the records, printable
  std::vector<std::string> erased;  // damaged records whose keys have changed
};

// Restores the dentries and inodes along `path`, and the extended attributes of the last one, where
// the store has lost or damaged them; intact records stay. A restored file has the length of the
// backup until the garbage collector asks storage for it. Errc::not_found: the path is not in the
// backup.
Task<Result<RestoredName>> restore_name(kv::Engine& engine, io::Disk& disk, std::string backup,
                                        std::string path, int64_t deadline_ns);

}  // namespace ff::meta
