// connection.cc: opening a file, and running statements on it.
#include "platform/db/connection.h"

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

sqlite3_file& Connection::pointer(int which) const {
  sqlite3_file* file = nullptr;
  FF_CHECK(sqlite3_file_control(handle, "main", which, &file) == SQLITE_OK);
  return *file;
}

}  // namespace ff::db
