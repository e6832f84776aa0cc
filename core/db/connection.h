// The open SQLite file behind a Database and its Statements; for the units of core/db only.
#pragma once

#include <sqlite3.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "db/statement.h"

namespace ff::db {

struct Connection {
  explicit Connection(std::string file) : path(std::move(file)) {}
  ~Connection() { sqlite3_close_v2(handle); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Opens the file, creating it; the sqlite3 status, so that open() can tell corruption apart.
  int open(int busy_timeout_ms);
  // Statements without values; rows are dropped.
  Result<void> run(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  // What SQLite says about the last failure, with the code a caller can act on: SQLITE_FULL ->
  // disk_full, CORRUPT and NOTADB -> corrupt, READONLY and PERM -> refused, a unique or primary key
  // taken -> exists, BUSY -> failed after the busy timeout.
  Error error(int status) const;

  const std::string path;
  sqlite3* handle = nullptr;
};

}  // namespace ff::db
