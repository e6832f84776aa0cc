// A store in one file, and a store made from one: what `ff admin backup` and `restore` stand on.
//
//   8 bytes   "ffkv" and the version, 1, as a little-endian number of 32 bits
//   entries   in key order:  u32 size of the key | u32 size of the value | key | value | u32 CRC32C
//   the end   u32 0xffffffff | u32 0 | u64 entries | u32 CRC32C
//
// Numbers are little-endian; each CRC32C is over its entry up to there. What was cut off is found
// by the missing end, what was taken out by the count, what was flipped by a CRC. No key begins
// with 0xff.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/io/disk.h"
#include "platform/kv/engine.h"

namespace ff::kv {

struct BackupReport {
  uint64_t entries = 0;
  uint64_t bytes = 0;  // of the file
  // Keys (as key_text() writes them) of damaged records, which the backup leaves out.
  std::vector<std::string> left_out;
};

// Everything the store holds, at one moment, to the new file `path`, durable when this returns;
// the file is not there before it is whole. Damaged records are left out, and the report names
// them: one of them must not keep all others from being copied. Errc::exists: there is a file; the
// disk's, the store's.
Task<Result<BackupReport>> write_backup(Engine& engine, io::Disk& disk, std::string path,
                                        int64_t deadline_ns);

// Every entry of a backup, in key order. Errors as of restore_backup().
Result<void> read_backup(io::Disk& disk, const std::string& path,
                         const std::function<void(const Entry&)>& take);

// Checks the whole file before it changes anything, and then fills the store with it, in many
// transactions. Until the last of them the store has the key kRestoring, and whoever uses stores
// refuses one with it; called again, with any backup, such a store is emptied first.
// `at_end` is part of the last transaction: what must not be as old as the backup; it may take
// effect twice. Errc::exists: the store is not empty; corrupt, newer_format; the disk's, the
// store's.
Task<Result<BackupReport>> restore_backup(Engine& engine, io::Disk& disk, std::string path,
                                          int64_t deadline_ns, Function at_end = {});
inline const std::string kRestoring = "RSTR";

}  // namespace ff::kv
