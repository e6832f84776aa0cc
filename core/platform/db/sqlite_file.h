// SqliteFile: an open SQLite handle, and the translation of its errors. Internal to platform/db.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>

#include "platform/base/result.h"
#include "platform/db/disk_vfs.h"

namespace ff::db {

struct SqliteFile {
  // The last SQLite error as an Error: SQLITE_FULL -> disk_full, CORRUPT and NOTADB -> corrupt,
  // READONLY and PERM -> refused, a duplicate unique or primary key -> exists, BUSY (after the busy
  // timeout) -> failed. An error of a Disk is returned unchanged.
  Error error(int status) const;

  const std::string path;
  const std::unique_ptr<DiskVfs> vfs;  // may be null
  sqlite3* handle = nullptr;
};

}  // namespace ff::db
