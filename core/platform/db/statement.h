// Statement: a prepared SQL statement. Bind values, step through rows, read columns by type.
//
//   FF_TRY(db::Statement find, database.prepare("SELECT step, path FROM runs WHERE run = ?"));
//   find.bind(run);
//   while (true) {
//     FF_TRY(const bool row, find.step());
//     if (!row) break;
//     use(find.integer(0), find.text(1));
//   }
//
// Prepare once and bind many times. Not thread-safe; must be destroyed before its Database.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "platform/base/result.h"

struct sqlite3_stmt;

namespace ff::db {

struct SqliteConnection;
struct SqliteFile;

// Bytes that are bound without a copy (SQLITE_STATIC): the caller keeps them until the statement is
// reset or has run to its end.
struct Borrowed {
  ByteView bytes;
};

class Statement {
 public:
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;

  // Resets the statement and binds the values to its `?` in order; their count must match. Allowed
  // are integers, doubles, text, bytes (ByteView), std::optional of those, and nullptr for NULL.
  // All values are copied except Borrowed ones.
  template <class... A>
  void bind(const A&... values) {
    rewind(sizeof...(A));
    [[maybe_unused]] int index = 0;
    (bind_value(++index, values), ...);
  }

  // Steps to the next row. False after the last one; the statement can then be run again with the
  // same values.
  Result<bool> step();
  // Runs to the end, dropping rows.
  Result<void> run();
  // Ends the statement before its last row and releases its read snapshot.
  void reset();

  // Columns of the current row, numbered from 0. SQLite converts types implicitly: declare tables
  // STRICT. Text and bytes are valid until the next step or bind; NULL reads as 0 or empty.
  int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;
  ByteView blob(int column) const;
  bool is_null(int column) const;

 private:
  friend struct SqliteConnection;
  Statement(SqliteFile& file, sqlite3_stmt* statement) : file_(&file), statement_(statement) {}

  void rewind(size_t values);
  void bind_integer(int index, int64_t value);
  void bind_value(int index, double value);
  void bind_value(int index, std::string_view value);
  void bind_value(int index, ByteView value);
  void bind_value(int index, Borrowed value);
  void bind_value(int index, std::nullptr_t);
  template <std::integral T>
  void bind_value(int index, T value) {
    if constexpr (std::unsigned_integral<T>) FF_CHECK(uint64_t{value} <= INT64_MAX);
    bind_integer(index, static_cast<int64_t>(value));
  }
  template <class T>
  void bind_value(int index, const std::optional<T>& value) {
    value ? bind_value(index, *value) : bind_value(index, nullptr);
  }
  void check_column(int column) const;

  SqliteFile* file_;
  sqlite3_stmt* statement_;
};

}  // namespace ff::db
