// sqlite_file.cc: translating SQLite errors.
//
// SQLite reports "disk I/O error" and "unable to open" for many causes and keeps their errno. If an
// errno is known, the Error is made from it, so that a full or read-only disk has the same message
// and hint as everywhere else.
#include "platform/db/sqlite_file.h"

#include <cerrno>

namespace ff::db {

Error SqliteFile::error(int status) const {
  if (handle == nullptr) return fail(Errc::failed, "{}: {}", path, sqlite3_errstr(status));
  // Direct calls of sqlite3_file methods set no error message in the handle.
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

}  // namespace ff::db
