// The small files that say whose a disk is, and that only one daemon has it.
//
//   DIR/ff-disk   one line: ff-disk 1 cluster=ID disk=ID node=NUMBER crc=XXXXXXXX
//                 the number is the format of everything in DIR; crc is the CRC32C of what stands
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

constexpr uint32_t kDiskFormat = 1;

struct Identity {
  std::string cluster;  // letters, digits and "-", at most 64
  std::string disk;     // the same
  uint64_t node = 0;
  bool operator==(const Identity&) const = default;
};

std::string to_line(const Identity& identity);
// Errors: refused when it is not such a line, newer_format, corrupt. `path` is for messages.
Result<Identity> parse_identity(std::string_view line, const std::string& path);

// Errors: busy when another process has it.
Result<std::unique_ptr<io::File>> lock_disk(io::Disk& disk, const std::string& dir);
// Errors: not_found where no disk has been made, and those of parse_identity.
Result<Identity> read_identity(io::Disk& disk, const std::string& dir);
// Durable. Errors: usage for ids that do not fit the line.
Result<void> write_identity(io::Disk& disk, const std::string& dir, const Identity& identity);
// Refused when the disk is not of this cluster.
Result<void> check_cluster(const Identity& identity, const std::string& cluster,
                           const std::string& dir);

}  // namespace ff::chunk
