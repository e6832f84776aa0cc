// The position of the last acknowledged change of a disk, in a file outside the disk that lives as
// long as the machine runs (in /dev/shm). A disk that is behind it at the next open has lost
// acknowledged changes although the machine was not restarted: it was removed, reset or mounted
// again while they were not flushed.
//
//   DIR/ff-disk-CLUSTER-NODE-DISK   u32 magic "ffa2", u32 state, u32 CRC32C of the boot id, u32 0,
//                                   u64 position (Metadata::position()), u32 CRC32C of all before
//                                   it; with disk format 1: magic "ffa1", and instead of 0 and the
//                                   position u32 pages, u64 salt (db::LogPosition)
//
// The file is an aid only: without it, or if it cannot be written, nothing is reported as lost.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "platform/base/bytes.h"
#include "platform/db/database.h"
#include "platform/io/disk.h"
#include "storage/chunk/disk_identity.h"

namespace ff::chunk {

class AckedPosition {
 public:
  enum class State : uint32_t {
    open = 1,    // a process has the disk open, or ended without closing it
    closed = 2,  // everything up to the end is durable
    failed = 3,  // an I/O error ended the changes
  };

  // Reads the file of an earlier process, if this boot has one.
  AckedPosition(io::Disk& disk, const std::string& dir, const DiskIdentity& identity,
                const std::string& boot_id);
  AckedPosition(const AckedPosition&) = delete;
  AckedPosition& operator=(const AckedPosition&) = delete;

  // State in which an earlier process of this boot left the disk; nothing: unknown.
  std::optional<State> found() const { return found_; }
  // Whether a disk whose log ends at `now` lacks changes that an earlier process acknowledged.
  bool is_behind(uint64_t now) const;
  // The same for a disk of format 1.
  bool is_behind(const db::LogPosition& now) const;

  // A new process has opened the disk, and its log ends at `now`.
  void begin(uint64_t now);
  // All changes up to here are applied, and will be acknowledged. Costs one write to memory.
  void advance(uint64_t now);
  // No further change follows. A disk that has failed stays so until begin().
  void end(State state);

 private:
  void store();

  const uint32_t boot_;  // CRC32C of the boot id
  std::unique_ptr<io::File> file_;
  std::optional<State> found_;
  uint64_t found_at_ = 0;
  db::LogPosition found_format1_;  // 0 pages: the record is not of disk format 1

  std::mutex mutex_;  // guards the following
  State state_ = State::closed;
  uint64_t at_ = 0;
};

}  // namespace ff::chunk
