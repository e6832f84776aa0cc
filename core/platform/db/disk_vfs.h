// DiskVfs: an SQLite VFS on an io::Disk, so that simulated power losses, full disks and failed
// syncs (SimDisk) affect the database too. On a real machine the same code runs on SystemDisk.
//
// Locks: a connection locks the database file when it opens it, until it closes it. So there is one
// connection at a time and no shared memory: `PRAGMA locking_mode = EXCLUSIVE` must precede the
// first read. `temp_store = MEMORY` is required, because the VFS rejects temporary files.
//
// SQLite appends a header and a page at a time to its WAL; the VFS combines those of one
// transaction into one write, issued with the last page. So write errors still fail the commit, and
// no committed data stays in memory.
//
// After a failed sync all writing ends: the kernel may have dropped the dirty pages and report
// success for the next sync (see the PostgreSQL "fsyncgate"). Every later write and sync through
// this VFS fails with the first error; reads continue.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::db {

// The VFS of one connection; must outlive it. SQLite uses one random generator for the whole
// process (WAL salts, random() in SQL). Constructing a DiskVfs seeds it from `rng`, so that a
// simulation whose databases all use DiskVfs is repeatable to the byte.
class DiskVfs {
 public:
  DiskVfs(io::Disk& disk, Clock& clock, Rng& rng);
  ~DiskVfs();
  DiskVfs(const DiskVfs&) = delete;
  DiskVfs& operator=(const DiskVfs&) = delete;

  // For sqlite3_open_v2.
  const char* name() const { return name_.c_str(); }
  // The last error of the Disk, which SQLite's status codes cannot carry. Clears it.
  std::optional<Error> take_error();
  // The salt in the header of the WAL; 0 before SQLite has read or written one.
  uint64_t log_salt() const { return log_salt_; }

 private:
  struct Calls;  // the functions SQLite calls

  // Keeps the error; SQLITE_FULL for a full disk, else `otherwise`.
  int failed(Error error, int otherwise);

  io::Disk& disk_;
  Clock& clock_;
  Rng& rng_;
  uint64_t log_salt_ = 0;
  std::optional<Error> error_;        // the last error
  std::optional<Error> sync_failed_;  // the first error of a sync
  std::string name_;
  sqlite3_vfs vfs_{};
};

}  // namespace ff::db
