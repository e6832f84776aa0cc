// database.cc: opening (check, migrate, move aside) and transactions.
//
// Opening runs under an advisory lock on the file's directory, so that of two processes that meet
// the same corrupt file one moves it and the other finds the new one, and of two that meet an old
// schema one migrates. The version is read before anything is written: a newer file is not touched.
#include "db/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "db/connection.h"

namespace ff::db {
namespace {

class DirectoryLock {
 public:
  static Result<DirectoryLock> take(const std::string& dir, Clock& clock, int64_t timeout_ns) {
    constexpr int64_t kRetry = 10 * kMillisecond;
    DirectoryLock lock(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock.fd_ < 0) return errno_error(errno, dir);
    const int64_t end = clock.steady_ns() + timeout_ns;
    while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_error(errno, dir);
      if (clock.steady_ns() >= end) {
        return Error{Errc::failed, fmt::format("{}: another process is opening a file there", dir),
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
Result<std::string> single(Connection& connection, std::string_view sql) {
  FF_TRY(Statement statement, connection.prepare(sql));
  FF_TRY(const bool row, statement.step());
  return row ? std::string(statement.text(0)) : std::string();
}

// Of every connection; migrations run before foreign keys are on.
constexpr const char* kSettings = "PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON";
constexpr const char* kForeignKeys = "PRAGMA foreign_keys = ON";

// The version of the file, which must not be newer than this program.
Result<int64_t> read_version(Connection& connection, size_t newest) {
  FF_TRY(Statement statement, connection.prepare("PRAGMA user_version"));
  FF_TRY(statement.step());
  const int64_t version = statement.integer(0);
  if (version < 0 || version > static_cast<int64_t>(newest)) {
    return Error{Errc::newer_format,
                 fmt::format("{}: its schema has version {}, this ff knows versions up to {}",
                             connection.path, version, newest),
                 "Run the newer ff that wrote it, or set FF_STATE to another directory."};
  }
  return version;
}

// Bytes of a file, 0 when there is none.
uint64_t size_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

Result<void> check_content(Connection& connection) {
  FF_TRY(const std::string verdict, single(connection, "PRAGMA quick_check(1)"));
  if (verdict != "ok") return fail(Errc::corrupt, "{}: {}", connection.path, verdict);
  // SQLite reads the missing end of a cut last page as zeros. Only a log may still complete it.
  FF_TRY(Statement page_size, connection.prepare("PRAGMA page_size"));
  FF_TRY(page_size.step());
  if (size_of(connection.path) % static_cast<uint64_t>(page_size.integer(0)) != 0 &&
      size_of(connection.path + "-wal") == 0) {
    return fail(Errc::corrupt, "{}: cut off inside its last page", connection.path);
  }
  return {};
}

Result<void> migrate_one(Connection& connection, int64_t from, const char* sql) {
  FF_TRY(connection.run("BEGIN IMMEDIATE"));
  Result<void> done = connection.run(sql);
  if (done) done = connection.run(fmt::format("PRAGMA user_version = {}", from + 1).c_str());
  if (done) done = connection.run("COMMIT");
  if (done) return {};
  if (sqlite3_get_autocommit(connection.handle) == 0) (void)connection.run("ROLLBACK");
  return std::move(done).error().within(
      fmt::format("upgrade of the schema from version {} to {}: ", from, from + 1));
}

Result<void> prepare_file(Connection& connection, std::span<const char* const> migrations) {
  FF_TRY(const int64_t version, read_version(connection, migrations.size()));
  FF_TRY(check_content(connection));
  if (sqlite3_db_readonly(connection.handle, "main") != 0) {
    return errno_error(access(connection.path.c_str(), W_OK) != 0 ? errno : EROFS, connection.path);
  }
  FF_TRY(const std::string mode, single(connection, "PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return Error{Errc::unsupported,
                 fmt::format("{}: no write-ahead log is possible here", connection.path),
                 "Set FF_STATE to a directory on a local disk."};
  }
  FF_TRY(connection.run(kSettings));
  for (auto from = version; from < static_cast<int64_t>(migrations.size()); ++from) {
    FF_TRY(migrate_one(connection, from, migrations[static_cast<size_t>(from)]));
  }
  return connection.run(kForeignKeys);
}

Result<std::unique_ptr<Connection>> open_file(const std::string& path,
                                              std::span<const char* const> migrations,
                                              int busy_timeout_ms) {
  auto connection = std::make_unique<Connection>(path);
  const int status = connection->open(busy_timeout_ms);
  if (status != SQLITE_OK) return connection->error(status);
  // Closing a file that is found corrupt must leave its log as it is.
  sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  FF_TRY(prepare_file(*connection, migrations));
  sqlite3_db_config(connection->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  return connection;
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Renames the file, its log and its shared memory to PATH.corrupt-TIME, and returns that name. The
// log goes first: SQLite deletes a log that it finds beside no file.
Result<std::string> move_aside(const std::string& path, Clock& clock) {
  std::string stamp = format_time(clock.wall_ns());
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  const std::string base = fmt::format("{}.corrupt-{}", path, stamp);
  std::string target = base;
  for (int n = 2; exists(target); ++n) target = fmt::format("{}.{}", base, n);
  for (const char* suffix : {"-wal", "-shm", ""}) {
    if (std::rename((path + suffix).c_str(), (target + suffix).c_str()) != 0 && errno != ENOENT) {
      return errno_error(errno, path + suffix);
    }
  }
  return target;
}

}  // namespace

Result<Database> Database::open(const std::string& path, std::span<const char* const> migrations,
                                Clock& clock, OpenOptions options) {
  const std::string parent = std::filesystem::path(path).parent_path();
  FF_TRY(const DirectoryLock lock, DirectoryLock::take(parent.empty() ? "." : parent, clock,
                                                       options.busy_timeout_ms * kMillisecond));
  auto opened = open_file(path, migrations, options.busy_timeout_ms);
  std::string moved;
  if (!opened && opened.error().code == Errc::corrupt) {
    if (options.on_corrupt == OnCorrupt::refuse) {
      opened.error().hint = fmt::format(
          "Restore the file, or start with --accept-data-loss: it is then kept as {}.corrupt-TIME "
          "and an empty one takes its place.",
          path);
      return std::move(opened).error();
    }
    FF_TRY(moved, move_aside(path, clock));
    opened = open_file(path, migrations, options.busy_timeout_ms);
  }
  FF_TRY(std::unique_ptr<Connection> connection, std::move(opened));
  Database database(std::move(connection));
  database.moved_aside_ = std::move(moved);
  return database;
}

Result<Database> Database::another(int busy_timeout_ms) const {
  auto connection = std::make_unique<Connection>(path());
  const int status = connection->open(busy_timeout_ms);
  if (status != SQLITE_OK) return connection->error(status);
  FF_TRY(connection->run(kSettings));
  FF_TRY(connection->run(kForeignKeys));
  return Database(std::move(connection));
}

Database::Database(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

Result<Statement> Database::prepare(std::string_view sql) { return connection_->prepare(sql); }
Result<void> Database::run(const char* sql) { return connection_->run(sql); }

Result<Transaction> Database::begin() {
  FF_CHECK(sqlite3_get_autocommit(connection_->handle) != 0);  // they do not nest
  FF_TRY(connection_->run("BEGIN IMMEDIATE"));
  return Transaction(*connection_);
}

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
  Result<void> done = connection_->run("COMMIT");
  if (done) {
    connection_ = nullptr;
  } else {
    roll_back();
  }
  return done;
}

}  // namespace ff::db
