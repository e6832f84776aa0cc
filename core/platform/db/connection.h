// The open SQLite file behind a Database and its Statements; for the units of platform/db only.
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

struct Connection : SqliteFile {
  // With `on`, the file lies on that VFS's Disk and is this connection's alone; else SQLite's own.
  explicit Connection(std::string file, std::unique_ptr<DiskVfs> on = nullptr)
      : SqliteFile{.path = std::move(file), .vfs = std::move(on)} {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Opens the file, creating it; the sqlite3 status, so that open() can tell corruption apart.
  int open(int busy_timeout_ms);
  // Statements without values; rows are dropped.
  Result<void> run(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  // One that is run again and again, and prepared when it is first.
  Result<void> run(std::optional<Statement>& kept, std::string_view sql);
  // SQLite's handles of the file and its log, for what no SQL says. Their methods are null when
  // they are not open.
  sqlite3_file& file() const { return pointer(SQLITE_FCNTL_FILE_POINTER); }
  sqlite3_file& log() const { return pointer(SQLITE_FCNTL_JOURNAL_POINTER); }

  std::optional<Statement> begin, read, commit;  // of transactions
  int log_pages = 0;  // as of the last commit, once somebody wants to know

 private:
  sqlite3_file& pointer(int which) const;
};

}  // namespace ff::db
