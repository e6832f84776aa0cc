// statement.cc: Statement over sqlite3_stmt.
//
// A statement that has ended or failed releases its read snapshot; one that is in the middle of its
// rows keeps it until it is reset, bound again or destroyed. A wrong index is a bug of the caller
// and crashes; all runtime failures of SQLite are Errors.
#include "platform/db/statement.h"

#include <sqlite3.h>

#include "platform/db/sqlite_file.h"

namespace ff::db {

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement::Statement(Statement&& other) noexcept
    : file_(other.file_), statement_(std::exchange(other.statement_, nullptr)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(statement_, other.statement_);
  return *this;
}

void Statement::rewind(size_t values) {
  sqlite3_reset(statement_);
  FF_CHECK(static_cast<size_t>(sqlite3_bind_parameter_count(statement_)) == values);
}

void Statement::bind_integer(int index, int64_t value) {
  FF_CHECK(sqlite3_bind_int64(statement_, index, value) == SQLITE_OK);
}

void Statement::bind_value(int index, double value) {
  FF_CHECK(sqlite3_bind_double(statement_, index, value) == SQLITE_OK);
}

void Statement::bind_value(int index, std::string_view value) {
  // A null pointer would bind NULL; empty text is text.
  FF_CHECK(sqlite3_bind_text64(statement_, index, value.empty() ? "" : value.data(), value.size(),
                               SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
}

void Statement::bind_value(int index, ByteView value) {
  const void* data = value.empty() ? static_cast<const void*>("") : value.data();
  FF_CHECK(sqlite3_bind_blob64(statement_, index, data, value.size(), SQLITE_TRANSIENT) ==
           SQLITE_OK);
}

void Statement::bind_value(int index, Borrowed value) {
  const void* data = value.bytes.empty() ? static_cast<const void*>("") : value.bytes.data();
  FF_CHECK(sqlite3_bind_blob64(statement_, index, data, value.bytes.size(), SQLITE_STATIC) ==
           SQLITE_OK);
}

void Statement::bind_value(int index, std::nullptr_t) {
  FF_CHECK(sqlite3_bind_null(statement_, index) == SQLITE_OK);
}

Result<bool> Statement::step() {
  const int status = sqlite3_step(statement_);
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  return file_->error(status);
}

Result<void> Statement::run() {
  while (true) {
    FF_TRY(const bool row, step());
    if (!row) return {};
  }
}

void Statement::reset() { sqlite3_reset(statement_); }

void Statement::check_column(int column) const {
  FF_CHECK(column >= 0 && column < sqlite3_data_count(statement_));
}

int64_t Statement::integer(int column) const {
  check_column(column);
  return sqlite3_column_int64(statement_, column);
}

double Statement::real(int column) const {
  check_column(column);
  return sqlite3_column_double(statement_, column);
}

std::string_view Statement::text(int column) const {
  check_column(column);
  const unsigned char* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

ByteView Statement::blob(int column) const {
  check_column(column);
  const void* data = sqlite3_column_blob(statement_, column);
  if (data == nullptr) return {};
  return {static_cast<const std::byte*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

bool Statement::is_null(int column) const {
  check_column(column);
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

}  // namespace ff::db
