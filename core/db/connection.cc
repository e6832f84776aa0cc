// connection.cc: opening a file and translating SQLite's failures.
//
// SQLite says "disk I/O error" and "unable to open" for many causes and keeps the errno behind
// them; where there is one, the error is made of it, so that a full or read-only disk gets the same
// words and hint as everywhere else.
#include "db/connection.h"

#include <cerrno>

namespace ff::db {

namespace {

// SQLite counts its allocations under a lock that all connections share, for figures that nobody
// here asks for: 5 % of a metadata server's time. Where a program that loads libff.so has used
// SQLite before, it goes on counting.
void count_no_allocations() {
  [[maybe_unused]] static const int told = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

}  // namespace

Connection::~Connection() {
  begin.reset();
  read.reset();
  commit.reset();
  sqlite3_close_v2(handle);
}

int Connection::open(int busy_timeout_ms) {
  count_no_allocations();
  const int status = sqlite3_open_v2(
      path.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      vfs ? vfs->name() : nullptr);
  if (status != SQLITE_OK) return status;
  sqlite3_busy_timeout(handle, busy_timeout_ms);
  if (!vfs) return SQLITE_OK;
  constexpr const char* kAlone = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY";
  return sqlite3_exec(handle, kAlone, nullptr, nullptr, nullptr);
}

Result<void> Connection::run(const char* sql) {
  const int status = sqlite3_exec(handle, sql, nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return error(status);
  return {};
}

Result<Statement> Connection::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int status = sqlite3_prepare_v3(handle, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (status != SQLITE_OK) return error(status);
  return Statement(*this, statement);
}

Result<void> Connection::run(std::optional<Statement>& kept, std::string_view sql) {
  if (!kept) {
    FF_TRY(kept, prepare(sql));
  }
  return kept->run();
}

Error Connection::error(int status) const {
  if (handle == nullptr) return fail(Errc::failed, "{}: {}", path, sqlite3_errstr(status));
  // A file that was asked past SQLite has left no words there.
  const bool told_of = sqlite3_extended_errcode(handle) == status;
  const std::string message =
      fmt::format("{}: {}", path, told_of ? sqlite3_errmsg(handle) : sqlite3_errstr(status));
  if (status == SQLITE_CONSTRAINT_UNIQUE || status == SQLITE_CONSTRAINT_PRIMARYKEY) {
    return Error{Errc::exists, message, {}};
  }
  const int cause = sqlite3_system_errno(handle);
  const int kind = status & 0xff;
  if (vfs && (kind == SQLITE_FULL || kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN)) {
    if (auto told = vfs->take_error()) return std::move(*told);
  }
  switch (kind) {
    case SQLITE_FULL: return errno_error(ENOSPC, path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      if (cause != 0) return errno_error(cause, path);
      return Error{Errc::failed, message, {}};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Error{Errc::corrupt, message, {}};
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return Error{Errc::refused, message,
                   "Check the owner and mode of the file and its directory."};
    case SQLITE_BUSY:
      return Error{Errc::failed, fmt::format("{}: in use by another process", path),
                   "Run the command again when the other one has finished."};
    default: return Error{Errc::failed, message, {}};
  }
}

sqlite3_file& Connection::pointer(int which) const {
  sqlite3_file* file = nullptr;
  FF_CHECK(sqlite3_file_control(handle, "main", which, &file) == SQLITE_OK);
  return *file;
}

}  // namespace ff::db
