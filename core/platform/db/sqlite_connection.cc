// sqlite_connection.cc: opening a database file and running statements on it.
#include "platform/db/sqlite_connection.h"

namespace ff::db {

namespace {

// Disables SQLite's memory statistics, which ff does not use: a lock shared by all connections
// protects them and cost 5 % of a metadata server's time. No effect if a program that loads
// libff.so has already initialised SQLite.
void count_no_allocations() {
  [[maybe_unused]] static const int told = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

}  // namespace

SqliteConnection::~SqliteConnection() {
  begin.reset();
  read.reset();
  commit.reset();
  sqlite3_close_v2(handle);
}

int SqliteConnection::open(int busy_timeout_ms) {
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

Result<void> SqliteConnection::run(const char* sql) {
  const int status = sqlite3_exec(handle, sql, nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return error(status);
  return {};
}

Result<Statement> SqliteConnection::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int status = sqlite3_prepare_v3(handle, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (status != SQLITE_OK) return error(status);
  return Statement(*this, statement);
}

Result<void> SqliteConnection::run(std::optional<Statement>& kept, std::string_view sql) {
  if (!kept) {
    FF_TRY(kept, prepare(sql));
  }
  return kept->run();
}

sqlite3_file& SqliteConnection::pointer(int which) const {
  sqlite3_file* file = nullptr;
  FF_CHECK(sqlite3_file_control(handle, "main", which, &file) == SQLITE_OK);
  return *file;
}

}  // namespace ff::db
