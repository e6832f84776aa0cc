// A thin layer over SQLite for the state of ff: one file, one writer, versioned schema.
//
// Files are in WAL mode, by default with synchronous=FULL: a committed transaction survives a power
// loss, an unfinished one leaves no trace. The schema version is `PRAGMA user_version`; opening
// brings an older file forward and refuses a newer one. Nothing is ever deleted: a file that is
// corrupt is kept under another name.
//
// The log: the commit that brings it to 1,000 pages (PRAGMA wal_autocheckpoint says another number)
// copies all of them into the file, and the next one begins it anew. So it is no larger than 4 MiB
// and the largest transaction, unless a statement stands in the middle of its rows: that holds the
// log, which grows until the statement ends.
//
// A Database and its statements belong to one thread at a time. Other threads and processes open
// the file themselves; writers wait for each other up to the busy timeout. On an io::Disk (below)
// there is one Database at a time.
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

struct Connection;

enum class OnCorrupt : uint8_t {
  refuse,  // Errc::corrupt, and the file stays where it is: daemons without --accept-data-loss
  start_afresh,  // move it aside, tell through moved_aside(), begin with an empty one
};

enum class Synchronous : uint8_t {
  full,  // commit() returns when the transaction is durable
  // commit() hands it to the kernel: it survives the process. After a power loss there are the
  // transactions up to some one, all before the last flush() among them. Only on a Disk.
  normal,
};

struct OpenOptions {
  OnCorrupt on_corrupt = OnCorrupt::refuse;
  // How long a writer waits for another one, and for another process that is opening the file.
  int busy_timeout_ms = 5000;
  // Where the file lies. Null: in the machine's file systems, through SQLite's own calls, shared
  // with other processes. Else on this Disk (db/disk_vfs.h), which outlives the Database, and for
  // it alone: a second one fails at once with "in use by another process". There what
  // open() finds is durable, and a failed sync ends all writing: every later commit and flush()
  // fails with the same error. Opening again would not make such a disk one to rely on.
  io::Disk* disk = nullptr;
  Rng* rng = nullptr;  // with `disk`, and only then: SQLite's random numbers
  Synchronous synchronous = Synchronous::full;
};

class Transaction;

class Database {
 public:
  // Opens or creates the file `path`, whose directory exists. `migrations[i]` is the SQL that takes
  // a schema of version i to i + 1; each runs in one transaction of its own, with foreign keys off.
  // Errors: newer_format when the file has a version above migrations.size(), corrupt (see
  // OnCorrupt), else the file's own. Corruption is what SQLite's quick_check sees: pages and their
  // structure, not a flipped bit inside a stored value.
  static Result<Database> open(const std::string& path, std::span<const char* const> migrations,
                               Clock& clock, OpenOptions options);
  // Another connection to this file, for another thread: open() has checked and migrated it. Not on
  // a Disk.
  Result<Database> another(int busy_timeout_ms = OpenOptions().busy_timeout_ms) const;
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;

  Result<Statement> prepare(std::string_view sql);
  // One or more statements without values; rows are dropped.
  Result<void> run(const char* sql);
  // Starts a writing transaction (BEGIN IMMEDIATE); one at a time.
  Result<Transaction> begin();
  // Starts one that only reads, and sees one state until it ends.
  Result<Transaction> begin_reading();
  // Makes all committed transactions durable (one sync of the log). An error says that those since
  // the last flush may be lost, now or later: the kernel may have dropped them.
  Result<void> flush();

  // The log is copied into the file by checkpoint() alone, not by whoever commits when it is long.
  void checkpoint_by_hand();
  // Of the log, as of the last commit.
  int log_pages() const;
  // As much as no reader still needs.
  Result<void> checkpoint();

  int64_t last_insert_id() const;
  int64_t changes() const;  // rows changed by the last statement

  const std::string& path() const;
  // Where open() put the corrupt file it found (with its -wal and -shm beside it); else empty.
  const std::string& moved_aside() const { return moved_aside_; }

 private:
  explicit Database(std::unique_ptr<Connection> connection);

  std::unique_ptr<Connection> connection_;
  std::string moved_aside_;
};

// Rolls back when it ends without commit().
class [[nodiscard]] Transaction {
 public:
  ~Transaction();
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;

  // On failure nothing of the transaction remains in this Database. When the disk failed, or the
  // process died meanwhile, opening the file again finds all of it or nothing.
  Result<void> commit();

 private:
  friend class Database;
  explicit Transaction(Connection& connection) : connection_(&connection) {}
  void roll_back();

  Connection* connection_;  // null when over
};

}  // namespace ff::db
