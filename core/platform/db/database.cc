// database.cc: opening (check, migrate, rename a corrupt file) and transactions.
//
// Opening holds an advisory lock on the directory of the file (on a Disk: on the file). So if two
// processes find the same corrupt file, one renames it and the other opens the new file; if two
// find an old schema, one migrates it. The version is read before anything is written: a newer file
// is not modified.
#include "platform/db/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>

#include <cerrno>
#include <optional>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/units.h"
#include "platform/db/sqlite_connection.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

namespace ff::db {
namespace {

class DirectoryLock {
 public:
  static Result<DirectoryLock> acquire(const std::string& dir, Clock& clock, int64_t timeout_ns) {
    constexpr int64_t kRetry = 10 * kMillisecond;
    DirectoryLock lock(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock.fd_ < 0) return errno_error(errno, dir);
    const int64_t end = clock.steady_ns() + timeout_ns;
    while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_error(errno, dir);
      if (clock.steady_ns() >= end) {
        return Error{Errc::failed,
                     fmt::format("{}: another process is opening a database here", dir),
                     "Run the command again when the other one has finished."};
      }
      clock.sleep_ns(kRetry);
    }
    return lock;
  }

  ~DirectoryLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

// The first column of the first row.
Result<std::string> first_value(SqliteConnection& connection, std::string_view sql) {
  FF_TRY(Statement statement, connection.prepare(sql));
  FF_TRY(const bool row, statement.step());
  return row ? std::string(statement.text(0)) : std::string();
}

// The WAL size in pages (of 4 KiB) at which a commit checkpoints it.
constexpr int kLogPages = 1000;

// The settings of every connection; migrations run before foreign keys are enabled.
std::string settings(Synchronous synchronous) {
  return fmt::format(
      "PRAGMA synchronous = {}; PRAGMA wal_autocheckpoint = {}; PRAGMA cell_size_check = ON",
      synchronous == Synchronous::full ? "FULL" : "NORMAL", kLogPages);
}
constexpr const char* kForeignKeys = "PRAGMA foreign_keys = ON";

// Reads the schema version, which must not be newer than this program.
Result<int64_t> read_version(SqliteConnection& connection, size_t newest) {
  FF_TRY(Statement statement, connection.prepare("PRAGMA user_version"));
  FF_TRY(statement.step());
  const int64_t version = statement.integer(0);
  if (version < 0 || version > static_cast<int64_t>(newest)) {
    return Error{Errc::newer_format,
                 fmt::format("{}: schema version {} is too new; this ff supports versions up to {}",
                             connection.path, version, newest),
                 "Run the newer ff that wrote it, or set FF_STATE to another directory."};
  }
  return version;
}

// The size of a file in bytes; 0 if it is not open.
Result<int64_t> size_of(const SqliteConnection& connection, sqlite3_file& file) {
  sqlite3_int64 size = 0;
  if (file.pMethods == nullptr) return int64_t{0};
  const int status = file.pMethods->xFileSize(&file, &size);
  if (status != SQLITE_OK) return connection.error(status);
  return int64_t{size};
}

Result<void> check_structure(SqliteConnection& connection) {
  FF_TRY(const std::string verdict, first_value(connection, "PRAGMA quick_check(1)"));
  if (verdict != "ok") return fail(Errc::corrupt, "{}: {}", connection.path, verdict);
  return {};
}

// SQLite finds out itself if whole pages are missing, but reads the missing part of a truncated
// last page as zeros. A WAL may still repair it.
Result<void> check_size(SqliteConnection& connection) {
  FF_TRY(Statement page_size, connection.prepare("PRAGMA page_size"));
  FF_TRY(page_size.step());
  FF_TRY(const int64_t size, size_of(connection, connection.file()));
  FF_TRY(const int64_t log_size, size_of(connection, connection.log()));
  if (size % page_size.integer(0) != 0 && log_size == 0) {
    return fail(Errc::corrupt, "{}: the last page is truncated", connection.path);
  }
  return {};
}

Result<void> migrate_one(SqliteConnection& connection, int64_t from, const char* sql) {
  FF_TRY(connection.run("BEGIN IMMEDIATE"));
  Result<void> done = connection.run(sql);
  if (done) done = connection.run(fmt::format("PRAGMA user_version = {}", from + 1).c_str());
  if (done) done = connection.run("COMMIT");
  if (done) return {};
  if (sqlite3_get_autocommit(connection.handle) == 0) (void)connection.run("ROLLBACK");
  return std::move(done).error().with_context(
      fmt::format("schema migration from version {} to {}: ", from, from + 1));
}

Result<void> prepare_file(SqliteConnection& connection, std::span<const char* const> migrations,
                          const DatabaseOptions& options) {
  FF_TRY(const int64_t version, read_version(connection, migrations.size()));
  if (options.check_pages) FF_TRY(check_structure(connection));
  FF_TRY(check_size(connection));
  if (sqlite3_db_readonly(connection.handle, "main") != 0) {
    return errno_error(access(connection.path.c_str(), W_OK) != 0 ? errno : EROFS, connection.path);
  }
  FF_TRY(const std::string mode, first_value(connection, "PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return Error{Errc::unsupported,
                 fmt::format("{}: the file system does not support SQLite's WAL", connection.path),
                 "Set FF_STATE to a directory on a local disk."};
  }
  FF_TRY(connection.run(settings(options.synchronous).c_str()));
  for (auto from = version; from < static_cast<int64_t>(migrations.size()); ++from) {
    FF_TRY(migrate_one(connection, from, migrations[static_cast<size_t>(from)]));
  }
  return connection.run(kForeignKeys);
}

Result<void> open_file(SqliteConnection& connection, std::span<const char* const> migrations,
                       const DatabaseOptions& options) {
  const int status = connection.open(options.busy_timeout_ms);
  if (status != SQLITE_OK) return connection.error(status);
  // Closing a corrupt file must not checkpoint its WAL.
  sqlite3_db_config(connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  FF_TRY(prepare_file(connection, migrations, options));
  sqlite3_db_config(connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  return {};
}

// Renames the file, its WAL and its shared memory to PATH.corrupt-TIME, and returns that name. The
// WAL is renamed durably first: SQLite deletes a WAL without a database file.
Result<std::string> move_aside(io::Disk& disk, const std::string& path, Clock& clock) {
  std::string stamp = format_time(clock.wall_ns());
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  const std::string base = fmt::format("{}.corrupt-{}", path, stamp);
  std::string target = base;
  for (int n = 2;; ++n) {
    FF_TRY(const bool taken, io::exists(disk, target));
    FF_TRY(const bool log_taken, io::exists(disk, target + "-wal"));
    if (!taken && !log_taken) break;
    target = fmt::format("{}.{}", base, n);
  }
  for (const char* suffix : {"-wal", "-shm", ""}) {
    auto moved = disk.rename(path + suffix, target + suffix);
    if (!moved && moved.error().code == Errc::not_found) continue;
    FF_TRY(std::move(moved));
    FF_TRY(disk.sync_dir(io::parent(path)));
  }
  return target;
}

}  // namespace

Result<Database> Database::open(const std::string& path, std::span<const char* const> migrations,
                                Clock& clock, DatabaseOptions options) {
  FF_CHECK((options.disk == nullptr) == (options.rng == nullptr));
  io::SystemDisk machine;
  io::Disk& disk = options.disk != nullptr ? *options.disk : machine;
  // On a Disk the connection has the file to itself, from before it is checked.
  std::optional<DirectoryLock> lock;
  if (options.disk == nullptr) {
    const int64_t patience_ns = options.busy_timeout_ms * kMillisecond;
    FF_TRY(DirectoryLock taken, DirectoryLock::acquire(io::parent(path), clock, patience_ns));
    lock.emplace(std::move(taken));
  }
  const auto connect = [&] {
    auto vfs = options.disk != nullptr ? std::make_unique<DiskVfs>(disk, clock, *options.rng)
                                       : std::unique_ptr<DiskVfs>();
    return std::make_unique<SqliteConnection>(path, std::move(vfs));
  };
  auto connection = connect();
  auto opened = open_file(*connection, migrations, options);
  std::string moved;
  if (!opened && opened.error().code == Errc::corrupt) {
    if (options.on_corrupt == OnCorrupt::refuse) {
      opened.error().hint = fmt::format(
          "Restore the file, or start with --accept-data-loss, which renames it to {}.corrupt-TIME "
          "and creates an empty one.",
          path);
      return std::move(opened).error();
    }
    FF_TRY(moved, move_aside(disk, path, clock));
    connection = connect();  // this closes the renamed file
    opened = open_file(*connection, migrations, options);
  }
  FF_TRY(std::move(opened));
  Database database(std::move(connection));
  database.moved_aside_ = std::move(moved);
  // The WAL of a killed process may not be durable yet.
  FF_TRY(database.flush());
  return database;
}

Result<Database> Database::open_another(int busy_timeout_ms) const {
  FF_CHECK(!connection_->vfs);
  auto connection = std::make_unique<SqliteConnection>(path());
  const int status = connection->open(busy_timeout_ms);
  if (status != SQLITE_OK) return connection->error(status);
  FF_TRY(connection->run(settings(Synchronous::full).c_str()));
  FF_TRY(connection->run(kForeignKeys));
  return Database(std::move(connection));
}

Database::Database(std::unique_ptr<SqliteConnection> connection)
    : connection_(std::move(connection)) {}
Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

Result<Statement> Database::prepare(std::string_view sql) { return connection_->prepare(sql); }
Result<void> Database::run(const char* sql) { return connection_->run(sql); }

Result<Transaction> Database::begin() {
  FF_CHECK(sqlite3_get_autocommit(connection_->handle) != 0);  // they do not nest
  FF_TRY(connection_->run(connection_->begin, "BEGIN IMMEDIATE"));
  return Transaction(*connection_);
}

Result<Transaction> Database::begin_read() {
  FF_CHECK(sqlite3_get_autocommit(connection_->handle) != 0);
  FF_TRY(connection_->run(connection_->read, "BEGIN"));
  return Transaction(*connection_);
}

Result<void> Database::flush() {
  // A checkpoint syncs the file before it resets the WAL, so the rest is durable already.
  sqlite3_file& log = connection_->log();
  if (log.pMethods == nullptr) return {};
  const int status = log.pMethods->xSync(&log, SQLITE_SYNC_NORMAL);
  if (status != SQLITE_OK) return connection_->error(status);
  return {};
}

void Database::disable_auto_checkpoint() {
  const auto keep = [](void* pages, sqlite3*, const char*, int count) {
    *static_cast<int*>(pages) = count;
    return SQLITE_OK;
  };
  sqlite3_wal_hook(connection_->handle, keep, &connection_->wal_pages);
}

int Database::wal_pages() const { return connection_->wal_pages; }

LogPosition Database::log_position() const {
  FF_CHECK(connection_->vfs);
  return {.salt = connection_->vfs->log_salt(),
          .pages = static_cast<uint32_t>(connection_->wal_pages)};
}

Result<void> Database::checkpoint() {
  int pages = 0;
  const int status = sqlite3_wal_checkpoint_v2(connection_->handle, nullptr,
                                               SQLITE_CHECKPOINT_PASSIVE, &pages, nullptr);
  if (status == SQLITE_OK) connection_->wal_pages = std::max(pages, 0);
  return status == SQLITE_OK ? Result<void>() : connection_->error(status);
}

Result<void> Database::check_pages() { return check_structure(*connection_); }
void Database::interrupt() { sqlite3_interrupt(connection_->handle); }

int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(connection_->handle); }
int64_t Database::changes() const { return sqlite3_changes64(connection_->handle); }
const std::string& Database::path() const { return connection_->path; }

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() { roll_back(); }

void Transaction::roll_back() {
  if (connection_ == nullptr) return;
  // SQLite has already rolled back after some failures (a full disk).
  if (sqlite3_get_autocommit(connection_->handle) == 0) (void)connection_->run("ROLLBACK");
  connection_ = nullptr;
}

Result<void> Transaction::commit() {
  FF_CHECK(connection_ != nullptr);
  Result<void> done = connection_->run(connection_->commit, "COMMIT");
  if (done) {
    connection_ = nullptr;
  } else {
    roll_back();
  }
  return done;
}

}  // namespace ff::db
