// Files that identify a disk and lock it for one process.
//
//   DIR/ff-disk   one line: ff-disk 3 cluster=ID disk=ID node=NUMBER crc=XXXXXXXX
//                 the number is the format of everything in DIR; crc is the CRC32C of the text
//                 before " crc="
//   DIR/lock      empty; locked by the process that has the disk open
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::chunk {

// Format 1 had its metadata in SQLite (format1.h). Format 2 had no data in the log of the metadata;
// such a disk needs no other upgrade than its number, by which an earlier ff refuses it.
constexpr uint32_t kDiskFormat = 3;

struct DiskIdentity {
  std::string cluster;  // letters, digits and "-", at most 64
  std::string disk;     // same format
  uint64_t node = 0;
  uint32_t format = kDiskFormat;  // 1 to kDiskFormat
  bool operator==(const DiskIdentity&) const = default;
};

std::string to_line(const DiskIdentity& identity);
// Errors: refused (not such a line), newer_format, corrupt. `path` is for messages.
Result<DiskIdentity> parse_identity(std::string_view line, const std::string& path);

// Errors: busy (another process holds the lock).
Result<std::unique_ptr<io::File>> lock_disk(io::Disk& disk, const std::string& dir);
// Errors: not_found (no disk was created here), and those of parse_identity.
Result<DiskIdentity> read_identity(io::Disk& disk, const std::string& dir);
// Durable on return. Errors: usage (invalid ids).
Result<void> write_identity(io::Disk& disk, const std::string& dir, const DiskIdentity& identity);
// Errors: refused (the disk belongs to another cluster).
Result<void> check_cluster(const DiskIdentity& identity, const std::string& cluster,
                           const std::string& dir);

}  // namespace ff::chunk
