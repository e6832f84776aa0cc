// Database: a thin layer over SQLite for local state: one file, one writer, a versioned schema.
//
// Files are in WAL mode, by default with synchronous=FULL: a committed transaction survives a power
// loss, an unfinished one leaves no trace. The schema version is `PRAGMA user_version`; open()
// migrates an older file and rejects a newer one. Nothing is ever deleted: a corrupt file is
// renamed and kept.
//
// The WAL: the commit that grows it to 1,000 pages (or PRAGMA wal_autocheckpoint) checkpoints all
// of them into the file, and the next commit starts the WAL from the beginning. So the WAL is at
// most 4 MiB plus the largest transaction, except while a statement is in the middle of its rows:
// its read snapshot blocks the reset, and the WAL grows until the statement ends.
//
// A Database and its statements belong to one thread at a time. Other threads and processes open
// the file themselves; writers wait for each other up to the busy timeout. On an io::Disk (below)
// only one Database can be open at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/db/statement.h"
#include "platform/io/disk.h"

namespace ff::db {

struct SqliteConnection;

enum class OnCorrupt : uint8_t {
  refuse,    // fail with Errc::corrupt and keep the file: daemons without --accept-data-loss
  recreate,  // rename the file (moved_aside() returns the name) and create an empty one
};

enum class Synchronous : uint8_t {
  full,  // commit() returns when the transaction is durable
  // commit() writes to the kernel only: the transaction survives a crash of the process. After a
  // power loss the file has a prefix of the transactions, at least all before the last flush().
  // Only on a Disk.
  normal,
};

struct DatabaseOptions {
  OnCorrupt on_corrupt = OnCorrupt::refuse;
  // How long a writer waits for another writer, and for another process that is opening the file.
  int busy_timeout_ms = 5000;
  // Null: the file is in the file systems of the machine, accessed by SQLite's own VFS and shared
  // with other processes. Else the file is on this Disk (db/disk_vfs.h), which must outlive the
  // Database; a second Database fails at once with "in use by another process". On a Disk, the data
  // that open() finds is durable, and after a failed sync every later commit and flush() fails with
  // the same error. Reopening does not help: the disk is no longer reliable.
  io::Disk* disk = nullptr;
  Rng* rng = nullptr;  // required with `disk`, unused without: SQLite's random numbers
  Synchronous synchronous = Synchronous::full;
  // Whether open() calls check_pages(), which takes time in proportion to the size of the file.
  // Without it, open() finds a file that is no database or is truncated, and no other damage.
  bool check_pages = true;
};

class Transaction;

// The end of the WAL, to compare two states of a file. SQLite begins the WAL anew, with the next
// generation, after a checkpoint of all of it.
struct LogPosition {
  uint64_t salt = 0;   // of its header; 0: there is no WAL
  uint32_t pages = 0;  // of committed transactions
  uint32_t generation() const { return static_cast<uint32_t>(salt >> 32); }
  bool operator==(const LogPosition&) const = default;
};

class Database {
 public:
  // Opens or creates the file `path` in an existing directory. `migrations[i]` is the SQL that
  // migrates schema version i to i + 1; each runs in its own transaction, with foreign keys off.
  // Errors: newer_format if the schema version exceeds migrations.size(), corrupt (see OnCorrupt),
  // or an I/O error.
  static Result<Database> open(const std::string& path, std::span<const char* const> migrations,
                               Clock& clock, DatabaseOptions options);
  // Opens another connection to this file, for another thread, without checks and migrations. Not
  // available on a Disk.
  Result<Database> open_another(int busy_timeout_ms = DatabaseOptions().busy_timeout_ms) const;
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;

  Result<Statement> prepare(std::string_view sql);
  // One or more statements without values; rows are dropped.
  Result<void> run(const char* sql);
  // Begins a write transaction (BEGIN IMMEDIATE); one at a time.
  Result<Transaction> begin();
  // Begins a read-only transaction, which reads one snapshot.
  Result<Transaction> begin_read();
  // Makes all committed transactions durable (one sync of the WAL). After an error, those since the
  // last successful flush may be lost: the kernel may have dropped them.
  Result<void> flush();

  // After this call only checkpoint() checkpoints the WAL; commits no longer do.
  void disable_auto_checkpoint();
  // The size of the WAL in pages after the last commit or checkpoint(); only after
  // disable_auto_checkpoint().
  int wal_pages() const;
  // Only on a Disk, and after disable_auto_checkpoint(). checkpoint() determines it after open().
  LogPosition log_position() const;
  // Checkpoints the WAL pages that no reader needs (SQLITE_CHECKPOINT_PASSIVE).
  Result<void> checkpoint();

  // Checks the structure of all pages in one snapshot (SQLite's quick_check); it does not find a
  // flipped bit inside a stored value. Errc::corrupt, or an I/O error. After interrupt(), which
  // another thread may call meanwhile, it returns soon, and the result means nothing.
  Result<void> check_pages();
  void interrupt();

  int64_t last_insert_id() const;
  int64_t changes() const;  // rows changed by the last statement

  const std::string& path() const;
  // The new name of a corrupt file that open() renamed (with its -wal and -shm files); else empty.
  const std::string& moved_aside() const { return moved_aside_; }

 private:
  explicit Database(std::unique_ptr<SqliteConnection> connection);

  std::unique_ptr<SqliteConnection> connection_;
  std::string moved_aside_;
};

// A transaction; the destructor rolls it back unless commit() was called.
class [[nodiscard]] Transaction {
 public:
  ~Transaction();
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;

  // On failure the transaction is rolled back. After a disk error or a crash, the reopened file has
  // all of the transaction or nothing.
  Result<void> commit();

 private:
  friend class Database;
  explicit Transaction(SqliteConnection& connection) : connection_(&connection) {}
  void roll_back();

  SqliteConnection* connection_;  // null after the end of the transaction
};

}  // namespace ff::db
