// SQLite's files on an io::Disk: what a power loss, a full disk or a failed sync does to that Disk
// it does to the database on it. In simulation the Disk is SimDisk; on a machine the same code
// runs over SystemDisk.
//
// Locks: who opens the database file holds its lock until it closes, so there is one connection at
// a time and no shared memory: `PRAGMA locking_mode = EXCLUSIVE` comes before the first read, and
// `temp_store = MEMORY`, for temporary files are refused.
//
// SQLite appends to its log a header and a page at a time: those of one transaction become one
// write, which its last page waits for. So a commit fails as it would without, and none is kept
// back.
//
// A failed sync is the end of writing: the kernel may have dropped what was to be synced and call
// the next sync a success. From then on every write and sync through this VFS fails with the first
// error, and reads go on.
#pragma once

#include <sqlite3.h>

#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::db {

// The VFS of one connection; outlives it. SQLite draws from one generator for the whole process
// (salts of the log, random() in SQL): making a DiskVfs seeds it from `rng`, so that a simulation
// that uses nothing but these repeats to the byte.
class DiskVfs {
 public:
  DiskVfs(io::Disk& disk, Clock& clock, Rng& rng);
  ~DiskVfs();
  DiskVfs(const DiskVfs&) = delete;
  DiskVfs& operator=(const DiskVfs&) = delete;

  // For sqlite3_open_v2.
  const char* name() const { return name_.c_str(); }
  // What the Disk said when it last failed, which SQLite's codes cannot carry; once.
  std::optional<Error> take_error();

 private:
  struct Calls;  // the functions SQLite calls

  // Keeps the error; SQLITE_FULL for a full disk, else `otherwise`.
  int failed(Error error, int otherwise);

  io::Disk& disk_;
  Clock& clock_;
  Rng& rng_;
  std::optional<Error> error_;        // the last
  std::optional<Error> sync_failed_;  // the first of a sync
  std::string name_;
  sqlite3_vfs vfs_{};
};

}  // namespace ff::db
