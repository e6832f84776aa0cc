// One name of a backup put back into a store whose records are damaged, or have gone with their
// pages. Nobody else uses the store meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/io/disk.h"
#include "platform/kv/engine.h"

namespace ff::meta {

struct RestoredName {
  std::vector<std::string> put;     // records, as people can read them
  std::vector<std::string> erased;  // damaged ones, whose keys have become others
};

// What the backup has of the directories on the way to `path`, of its inode and of its attributes,
// where the store has it no more, or damaged; what is whole stays. A file that is put back is as
// long as it was then, until storage is asked. Errc::not_found: the backup has no such name.
Task<Result<RestoredName>> restore_name(kv::Engine& engine, io::Disk& disk, std::string backup,
                                        std::string path, int64_t deadline_ns);

}  // namespace ff::meta
