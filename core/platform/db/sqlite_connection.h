// SqliteConnection: the SQLite handle behind a Database and its Statements. Internal to
// platform/db.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/result.h"
#include "platform/db/disk_vfs.h"
#include "platform/db/sqlite_file.h"
#include "platform/db/statement.h"

namespace ff::db {

struct SqliteConnection : SqliteFile {
  // With `on`, the file is on the Disk of that VFS and exclusive to this connection; else SQLite's
  // default VFS is used.
  explicit SqliteConnection(std::string file, std::unique_ptr<DiskVfs> on = nullptr)
      : SqliteFile{.path = std::move(file), .vfs = std::move(on)} {}
  ~SqliteConnection();
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  // Opens the file and creates it if needed. Returns the SQLite status, so that the caller can
  // detect corruption.
  int open(int busy_timeout_ms);
  // Runs statements without parameters; drops their rows.
  Result<void> run(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  // Runs a statement that is prepared on first use and kept.
  Result<void> run(std::optional<Statement>& kept, std::string_view sql);
  // SQLite's handles of the database file and its WAL, for calls that SQL does not offer. Their
  // pMethods is null if they are not open.
  sqlite3_file& file() const { return pointer(SQLITE_FCNTL_FILE_POINTER); }
  sqlite3_file& log() const { return pointer(SQLITE_FCNTL_JOURNAL_POINTER); }

  std::optional<Statement> begin, read, commit;  // of transactions
  int wal_pages = 0;  // after the last commit or checkpoint, if disable_auto_checkpoint()

 private:
  sqlite3_file& pointer(int which) const;
};

}  // namespace ff::db
