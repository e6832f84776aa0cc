// An open SQLite file, and its failures in the words of this program; for the units of
// platform/db only.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>

#include "platform/base/result.h"
#include "platform/db/disk_vfs.h"

namespace ff::db {

struct SqliteFile {
  // What SQLite says about the last failure, with the code a caller can act on: SQLITE_FULL ->
  // disk_full, CORRUPT and NOTADB -> corrupt, READONLY and PERM -> refused, a unique or primary key
  // taken -> exists, BUSY -> failed after the busy timeout. A Disk's failures in its own words.
  Error error(int status) const;

  const std::string path;
  const std::unique_ptr<DiskVfs> vfs;  // may be null
  sqlite3* handle = nullptr;
};

}  // namespace ff::db
