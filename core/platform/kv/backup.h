// Backup of a key-value store to one file, and restore from it (`ff admin backup`, `restore`).
//
//   8 bytes   "ffkv" and the version, 1, as a little-endian number of 32 bits
//   entries   in key order:  u32 size of the key | u32 size of the value | key | value | u32 CRC32C
//   the end   u32 0xffffffff | u32 0 | u64 entries | u32 CRC32C
//
// Numbers are little-endian; each CRC32C covers its entry up to the CRC. The end record detects
// truncation, the count missing entries, the CRCs bit flips. No key begins with 0xff.
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
  uint64_t bytes = 0;  // size of the file
  // Keys (in the form of key_text()) of damaged records, which the backup omits.
  std::vector<std::string> left_out;
};

// Writes a consistent snapshot of the store to the new file `path`. The file appears only when it
// is complete, and is durable when this returns. Damaged records are omitted and listed in the
// report, so that they do not prevent the backup of the others. Errors: Errc::exists, those of the
// disk and the store.
Task<Result<BackupReport>> write_backup(Engine& engine, io::Disk& disk, std::string path,
                                        int64_t deadline_ns);

// Calls `visit` for every entry of a backup, in key order. Errors: those of restore_backup().
Result<void> read_backup(io::Disk& disk, const std::string& path,
                         const std::function<void(const Entry&)>& visit);

// Verifies the whole file, then loads it into the store in many transactions. Until the last one
// the store contains the key kRestoring; services refuse to use such a store. A repeated call, with
// any backup, empties such a store first. `at_end` runs in the last transaction, for state that
// must be newer than the backup; it may take effect twice. Errors: Errc::exists (the store is not
// empty), Errc::corrupt, Errc::newer_format, those of the disk and the store.
Task<Result<BackupReport>> restore_backup(Engine& engine, io::Disk& disk, std::string path,
                                          int64_t deadline_ns, TxnFunction at_end = nullptr);
inline const std::string kRestoring = "RSTR";

}  // namespace ff::kv
