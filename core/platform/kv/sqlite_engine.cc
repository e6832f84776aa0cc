// sqlite_engine.cc: the request queues between loops and threads, and the execution of requests.
#include "platform/kv/sqlite_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/inline_task.h"
#include "platform/kv/record_checksum.h"

namespace ff::kv {

namespace {

// Maximum number of functions per group commit. With more the cost per sync no longer matters, and
// smaller groups let the loop process answers while the writer runs the next group.
constexpr size_t kBatchMax = 128;

// 64 MiB of page cache for the writer's connection, and for those of loops: random keys need one
// page each. SQLite invalidates the cache of a reader after every commit, so the threads of readers
// would not benefit; between two commits a loop looks up much.
constexpr const char* kLargeCache = "PRAGMA cache_size = -65536";
// Checkpoint after 32 MiB of write-ahead log, so that pages that change often are copied once.
constexpr int kLogPages = 8192;
// Asynchronous commits are durable after this time.
constexpr int64_t kAsyncCommitDelayNs = 100 * kMillisecond;

constexpr const char* kMigrations[] = {
    "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
    // The position of the store, and the start position of each generation.
    "CREATE TABLE place (one INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT;"
    "INSERT INTO place VALUES (1, 0);"
    "CREATE TABLE generations (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, "
    "position INTEGER NOT NULL) STRICT",
    // Values have checksums from this version on; DbConnection::migrate_records() moves old
    // records. The table seals records the checksum format, and prevents a second migration.
    "CREATE TABLE seals (format INTEGER NOT NULL) STRICT;"
    "INSERT INTO seals VALUES (1);"
    "ALTER TABLE kv RENAME TO unsealed;"
    "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
};
// Records per transaction of the migration.
constexpr size_t kMigratedAtOnce = 10'000;

}  // namespace

// A queued or running function. The store's mutex guards `result` and `state` until it is done.
struct SqliteStore::Request {
  enum class State : uint8_t { waiting, running, ended };  // ended: done or withdrawn

  Request(Loop& of, TxnFunction what, int64_t until_ns, bool waits)
      : loop(of), function(std::move(what)), deadline_ns(until_ns), durable(waits), done(of) {}

  Loop& loop;
  TxnFunction function;  // null: only makes earlier commits durable
  const int64_t deadline_ns;
  const bool durable;  // sync before the answer
  State state = State::waiting;
  Result<void> result;
  Event done;  // set in the loop
};

// An SQLite connection to the file, and the transactions of one thread on it.
class SqliteStore::DbConnection {
 public:
  static Result<std::unique_ptr<DbConnection>> open(const std::string& path, Clock& clock,
                                                    db::DatabaseOptions options) {
    FF_TRY(auto database, db::Database::open(path, kMigrations, clock, options));
    FF_TRY(database.run(kLargeCache));
    database.disable_auto_checkpoint();
    return on(std::move(database));
  }
  // Opens a connection for another thread; the file has been checked already.
  Result<std::unique_ptr<DbConnection>> open_another() {
    FF_TRY(auto database, database_.open_another());
    return on(std::move(database));
  }
  Result<void> enlarge_cache() { return database_.run(kLargeCache); }
  Result<db::Database> open_check() { return database_.open_another(); }
  const std::string& moved_aside() const { return database_.moved_aside(); }

  // Adds checksums to the records of older versions. Resumes an interrupted migration.
  Result<void> migrate_records(bool owned) {
    FF_TRY(auto looking, database_.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'unsealed'"));
    FF_TRY(bool more, looking.step());
    if (!more) return {};
    FF_TRY(looking.run());
    if (!owned) {
      return Error{
          Errc::failed,
          fmt::format("{}: the migration of its records is not complete", database_.path()),
          "Start its daemon, which continues the migration."};
    }
    FF_TRY(auto first, database_.prepare("SELECT key, value FROM unsealed ORDER BY key LIMIT ?"));
    FF_TRY(auto erase, database_.prepare("DELETE FROM unsealed WHERE key <= ?"));
    while (more) {
      FF_TRY(auto transaction, database_.begin());
      std::string last;
      first.bind(kMigratedAtOnce);
      size_t count = 0;
      for (;; count++) {
        FF_TRY(const bool row, first.step());
        if (!row) break;
        last = as_text(first.blob(0));
        put_.bind(as_bytes(last), as_bytes(with_checksum(last, as_text(first.blob(1)))));
        FF_TRY(put_.run());
      }
      erase.bind(as_bytes(last));
      FF_TRY(erase.run());
      FF_TRY(transaction.commit());
      more = count == kMigratedAtOnce;
    }
    FF_TRY(database_.run("DROP TABLE unsealed"));
    return database_.flush();
  }
  // Existing commits are durable (db::Database::open), and so is the new generation.
  Result<void> begin_generation() {
    FF_TRY(auto generations, database_.prepare("SELECT generation, position FROM generations "
                                               "ORDER BY number"));
    for (;;) {
      FF_TRY(const bool row, generations.step());
      if (!row) break;
      began_.push_back({static_cast<uint64_t>(generations.integer(0)),
                        static_cast<uint64_t>(generations.integer(1))});
    }
    FF_TRY(auto place, database_.prepare("SELECT position FROM place WHERE one = 1"));
    FF_TRY(const bool placed, place.step());
    if (!placed) return fail(Errc::corrupt, "{}: the commit position is missing", database_.path());
    const auto position = static_cast<uint64_t>(place.integer(0));
    FF_TRY(place.run());
    const uint64_t generation = (system_seed() >> 1) | 1;
    FF_TRY(auto adding,
           database_.prepare("INSERT INTO generations (generation, position) VALUES (?, ?)"));
    adding.bind(generation, position);
    FF_TRY(auto transaction, database_.begin());
    FF_TRY(adding.run());
    FF_TRY(auto dropping, database_.prepare("DELETE FROM generations WHERE number <= ?"));
    dropping.bind(database_.last_insert_id() - static_cast<int64_t>(kGenerationsMax));
    FF_TRY(dropping.run());
    FF_TRY(transaction.commit());
    FF_TRY(database_.flush());
    began_.push_back({generation, position});
    committed_ = durable_ = position;
    return {};
  }
  CommitPosition last_commit() const {
    return began_.empty() ? CommitPosition() : CommitPosition{began_.back().generation, committed_};
  }
  std::optional<uint64_t> durable_position(uint64_t generation) const {
    const auto found = std::ranges::find(began_, generation, &CommitPosition::generation);
    if (found == began_.end()) return std::nullopt;
    if (std::next(found) == began_.end()) return durable_;
    return std::next(found)->position;
  }

  // Runs all requests in one SQLite transaction, in order. If one of them cannot be stored, each
  // gets a transaction of its own, so that the others succeed.
  void write(SqliteStore& store, const std::vector<std::shared_ptr<Request>>& requests) {
    auto stored = broken_ ? Result<void>(*broken_) : write_together(store, requests);
    for (const auto& request : requests) {
      if (stored) break;
      const bool again = requests.size() > 1 && !broken_;
      auto alone = again ? write_together(store, {request}) : stored;
      if (!alone && request->result) request->result = std::move(alone).error();
    }
    const bool waits = std::ranges::any_of(requests, [](auto& one) { return one->durable; });
    if (!waits) return;
    const auto flushed = flush();
    for (const auto& request : requests) {
      if (!flushed && request->result) request->result = flushed.error();
    }
  }
  // When the next flush of asynchronous commits is due; empty: all commits are durable.
  std::optional<int64_t> flush_due_ns() const {
    if (!unsynced_ns_) return std::nullopt;
    return *unsynced_ns_ + kAsyncCommitDelayNs;
  }
  bool needs_checkpoint() const { return database_.wal_pages() >= kLogPages; }
  // Flushes and checkpoints if due.
  void do_deferred_work(int64_t now_ns) {
    if (unsynced_ns_ && now_ns >= *unsynced_ns_ + kAsyncCommitDelayNs) (void)flush();
    if (database_.wal_pages() < kLogPages) return;
    const auto copied = database_.checkpoint();
    if (!copied)
      log_warning("checkpoint of the write-ahead log failed", {{"cause", copied.error().message}});
  }
  // After a failed sync the kernel may have dropped dirty pages, so the store accepts no more
  // writes.
  Result<void> flush() {
    if (broken_) return *broken_;
    if (!unsynced_ns_) return {};
    auto flushed = database_.flush();
    if (flushed) {
      unsynced_ns_.reset();
      durable_ = committed_.load();
      return flushed;
    }
    broken_ = flushed.error();
    broken_->hint = std::string("Check the disk, then restart the daemon.");
    log_error("recent writes to the store may be lost", {{"cause", broken_->message}});
    return *broken_;
  }
  // Earlier commits become durable first.
  void refuse_writes(const Error& damage) {
    if (flush()) broken_ = damage;
  }
  void read(Request& request) {
    auto transaction = database_.begin_read();
    if (!transaction) {
      request.result = std::move(transaction).error();
      return;
    }
    Transaction txn(*this, kNoLimit);
    request.result = run_inline(request.function(txn));
    FF_CHECK(txn.writes().empty());
    auto ended = transaction->commit();
    if (request.result && !ended) request.result = std::move(ended);
  }

 private:
  class Transaction final : public Txn {
   public:
    Transaction(DbConnection& connection, size_t reads_max)
        : Txn(reads_max), connection_(connection) {}
    bool reads_take_round_trips() const override { return false; }

   private:
    Task<Result<std::optional<std::string>>> fetch(std::string key, bool) override {
      co_return connection_.get(key);
    }
    Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
      co_return connection_.range(range, guard == kIncludeDamaged);
    }
    DbConnection& connection_;
  };

  static Result<std::unique_ptr<DbConnection>> on(db::Database database) {
    FF_TRY(auto get,
           database.prepare("SELECT key, value FROM kv WHERE key >= ? ORDER BY key LIMIT 1"));
    FF_TRY(auto before,
           database.prepare("SELECT key, value FROM kv WHERE key < ? ORDER BY key DESC LIMIT 1"));
    FF_TRY(auto range, database.prepare("SELECT key, value FROM kv WHERE key >= ? ORDER BY key"));
    FF_TRY(auto put, database.prepare("REPLACE INTO kv (key, value) VALUES (?, ?)"));
    FF_TRY(auto erase, database.prepare("DELETE FROM kv WHERE key = ?"));
    FF_TRY(auto place, database.prepare("UPDATE place SET position = ? WHERE one = 1"));
    return std::unique_ptr<DbConnection>(new DbConnection(
        std::move(database), {std::move(get), std::move(before), std::move(range), std::move(put),
                              std::move(erase), std::move(place)}));
  }
  struct Statements {
    db::Statement get, before, range, put, erase, place;
  };
  DbConnection(db::Database database, Statements statements)
      : database_(std::move(database)),
        get_(std::move(statements.get)),
        before_(std::move(statements.before)),
        range_(std::move(statements.range)),
        put_(std::move(statements.put)),
        erase_(std::move(statements.erase)),
        place_(std::move(statements.place)) {}

  // Resets a statement at the end of its scope.
  struct Rows {
    explicit Rows(db::Statement& of) : statement(of) {}
    ~Rows() { statement.reset(); }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    db::Statement& statement;
  };
  // A bit flip in a key may move a record, so that it is not found: then a neighbour of its
  // position is damaged.
  static Result<void> check(const db::Statement& row) {
    const std::string_view key = as_text(row.blob(0));
    if (checksum_matches(key, as_text(row.blob(1)))) return {};
    return damaged_record(key);
  }
  Result<void> check_before(const std::string& key) {
    const Rows rows(before_);
    before_.bind(db::Borrowed{as_bytes(key)});
    FF_TRY(const bool row, before_.step());
    return row ? check(before_) : Result<void>();
  }
  Result<std::optional<std::string>> get(const std::string& key) {
    const Rows rows(get_);
    get_.bind(db::Borrowed{as_bytes(key)});
    FF_TRY(const bool row, get_.step());
    if (row && as_text(get_.blob(0)) == key)
      return std::optional(std::string(as_text(get_.blob(1))));
    if (row) FF_TRY(check(get_));
    FF_TRY(check_before(key));
    return std::optional<std::string>();
  }
  Result<std::vector<Entry>> range(const Range& range, bool with_damaged) {
    std::vector<Entry> entries;
    if (range.begin >= range.end) return entries;
    if (!with_damaged) FF_TRY(check_before(range.begin));
    const Rows rows(range_);
    range_.bind(db::Borrowed{as_bytes(range.begin)});
    for (;;) {
      FF_TRY(const bool row, range_.step());
      if (!row) return entries;
      const std::string_view key = as_text(range_.blob(0));
      // The key of a damaged record does not mark the end of the range.
      const bool behind = key >= range.end;
      const bool damaged = behind && !checksum_matches(key, as_text(range_.blob(1)));
      if (damaged && !with_damaged) return damaged_record(key);
      if (behind && !damaged) return entries;
      entries.push_back({std::string(key), std::string(as_text(range_.blob(1)))});
      if (entries.size() >= range.limit) return entries;
    }
  }
  Result<void> apply(const Txn::Writes& writes) {
    for (const auto& [key, value] : writes) {
      if (value) {
        const std::string stored = with_checksum(key, *value);
        put_.bind(db::Borrowed{as_bytes(key)}, db::Borrowed{as_bytes(stored)});
        FF_TRY(put_.run());
      } else {
        erase_.bind(db::Borrowed{as_bytes(key)});
        FF_TRY(erase_.run());
      }
    }
    return {};
  }
  // Returns errors of the store; then no request has written anything. Errors of functions are in
  // their results.
  Result<void> write_together(SqliteStore& store,
                              const std::vector<std::shared_ptr<Request>>& requests) {
    FF_TRY(auto transaction, database_.begin());
    bool any = false;
    for (const auto& request : requests) {
      if (!store.begin(*request) || request->function == nullptr) continue;
      Transaction txn(*this, kReadsMax);
      request->result = run_inline(request->function(txn));
      if (request->result) request->result = txn.check();
      if (!request->result || txn.writes().empty()) continue;
      FF_TRY(apply(txn.writes()));
      any = true;
    }
    if (!any) return transaction.commit();
    FF_CHECK(!began_.empty());  // it is owned
    const uint64_t position = committed_ + 1;
    place_.bind(position);
    FF_TRY(place_.run());
    if (!unsynced_ns_) unsynced_ns_ = store.clock_.steady_ns();
    FF_TRY(transaction.commit());
    committed_ = position;
    return {};
  }

  db::Database database_;
  std::optional<int64_t> unsynced_ns_;  // time of the first commit that is not durable
  std::optional<Error> broken_;         // the store accepts no more writes
  db::Statement get_;
  db::Statement before_;
  db::Statement range_;
  db::Statement put_;
  db::Statement erase_;
  db::Statement place_;
  // Writer only: positions, and the start of each generation. Loops read them concurrently.
  std::atomic<uint64_t> committed_ = 0;
  std::atomic<uint64_t> durable_ = 0;
  std::vector<CommitPosition> began_;
};

namespace {

// Read-only users must not migrate the file that a daemon owns.
Result<void> check_schema(const std::string& path, Clock& clock) {
  const std::span<const char* const> all = kMigrations;
  for (size_t version = 1; version < all.size(); version++) {
    const auto opened = db::Database::open(path, all.first(version), clock, {.check_pages = false});
    if (opened) {
      return Error{
          Errc::failed,
          fmt::format("{}: its schema has version {}, older than {}", path, version, all.size()),
          "Start its daemon with this ff first, which migrates it."};
    }
    if (opened.error().code != Errc::newer_format) return opened.error();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path, Clock& clock,
                                                       Options options) {
  if (!options.owned) FF_TRY(check_schema(path, clock));
  const bool checks_first = options.on_corrupt == db::OnCorrupt::recreate;
  FF_TRY(auto writer, DbConnection::open(path, clock,
                                         {.on_corrupt = options.on_corrupt,
                                          .synchronous = db::Synchronous::normal,
                                          .check_pages = checks_first}));
  FF_TRY(writer->migrate_records(options.owned));
  if (options.owned) FF_TRY(writer->begin_generation());
  std::unique_ptr<SqliteStore> store(new SqliteStore(clock, writer->moved_aside()));
  store->connections_.push_back(std::move(writer));
  for (unsigned i = 0; i < options.readers; i++) {
    FF_TRY(auto reader, store->connections_[0]->open_another());
    store->connections_.push_back(std::move(reader));
  }
  store->threads_.emplace_back([&of = *store] { of.write_loop(*of.connections_[0]); });
  for (unsigned i = 0; i < options.readers; i++) {
    store->threads_.emplace_back([&of = *store, i] { of.read_loop(*of.connections_[i + 1]); });
  }
  if (!options.owned || checks_first) {
    store->check_result_ = Result<void>();
    return store;
  }
  FF_TRY(store->checked_, store->connections_[0]->open_check());
  store->threads_.emplace_back(
      [&of = *store, hint = std::move(options.corrupt_hint)] { of.check_file(hint); });
  return store;
}

SqliteStore::SqliteStore(Clock& clock, std::string moved_aside)
    : clock_(clock), moved_aside_(std::move(moved_aside)) {}

SqliteStore::~SqliteStore() {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    // An interruption has no effect on a check that is just about to start.
    while (checked_ && !check_result_) {
      checked_->interrupt();
      ended_.wait_for(lock, std::chrono::milliseconds(5));
    }
  }
  writes_.wanted.notify_all();
  reads_.wanted.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

CommitPosition SqliteStore::last_commit() const { return connections_[0]->last_commit(); }

std::optional<uint64_t> SqliteStore::durable_position(uint64_t generation) const {
  return connections_[0]->durable_position(generation);
}

std::optional<Result<void>> SqliteStore::check_result() const {
  const std::lock_guard lock(mutex_);
  return check_result_;
}

// From now on `gauge` tells whether the file is damaged; null: nothing does any more.
void SqliteStore::report_damage(Gauge* gauge) {
  const std::lock_guard lock(mutex_);
  damaged_ = gauge;
  if (gauge != nullptr) gauge->set(is_damaged() ? 1 : 0);
}

bool SqliteStore::is_damaged() const {
  return check_result_ && !*check_result_ && check_result_->error().code == Errc::corrupt;
}

void SqliteStore::check_file(const std::string& hint) {
  auto result = checked_->check_pages();
  std::unique_lock lock(mutex_);
  if (closing_) result = Result<void>();  // it was interrupted
  lock.unlock();
  if (!result) {
    Error& error = result.error();
    error.hint = hint;
    const bool corrupt = error.code == Errc::corrupt;
    log_error(corrupt ? "the file of the store is damaged; ff makes no more changes to it"
                      : "the file of the store could not be checked for damage",
              {{"cause", error.message}, {"hint", hint}});
    const std::lock_guard writing(writing_);
    if (corrupt) connections_[0]->refuse_writes(error);
  }
  lock.lock();
  check_result_ = std::move(result);
  if (damaged_ != nullptr) damaged_->set(is_damaged() ? 1 : 0);
  ended_.notify_all();
}

void SqliteStore::add(Queue& queue, std::vector<std::shared_ptr<Request>> requests) {
  {
    const std::lock_guard lock(mutex_);
    std::move(requests.begin(), requests.end(), std::back_inserter(queue.requests));
  }
  queue.wanted.notify_one();
}

// Returns whether the request's task still exists; from now on it waits for the request's end.
bool SqliteStore::try_start(Request& request) {
  const std::lock_guard lock(mutex_);
  if (request.state == Request::State::ended) return false;
  request.state = Request::State::running;
  return true;
}

// Returns whether to run the function: it is not withdrawn, and its deadline has not passed.
bool SqliteStore::begin(Request& request) {
  if (!try_start(request)) return false;
  if (clock_.steady_ns() < request.deadline_ns) return true;
  request.result = fail(Errc::deadline, "the store did not start the transaction in time");
  return false;
}

// Cancels a waiting request, or waits for the end of a running one.
void SqliteStore::withdraw(const std::shared_ptr<Request>& request) {
  std::unique_lock lock(mutex_);
  if (request->state == Request::State::waiting) request->state = Request::State::ended;
  ended_.wait(lock, [&] { return request->state == Request::State::ended; });
}

// Waits for requests; returns none when the store is closing.
std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::wait_for_requests(Queue& queue,
                                                                                  size_t most) {
  std::unique_lock lock(mutex_);
  queue.wanted.wait(lock, [&] { return closing_ || !queue.requests.empty(); });
  return pop_front(queue, most);
}

std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::pop_front(Queue& queue,
                                                                          size_t most) {
  const auto first = queue.requests.begin();
  const auto last = first + static_cast<ptrdiff_t>(std::min(most, queue.requests.size()));
  std::vector<std::shared_ptr<Request>> taken(first, last);
  queue.requests.erase(first, last);
  return taken;
}

// After a request has ended, its task and loop may be destroyed. So the loops are notified first,
// and only about requests that are not withdrawn.
void SqliteStore::finish(const std::vector<std::shared_ptr<Request>>& requests) {
  std::map<Loop*, std::vector<std::shared_ptr<Request>>> by_loop;  // one wake-up for each
  for (const auto& request : requests) {
    if (try_start(*request)) by_loop[&request->loop].push_back(request);
  }
  for (auto& [loop, ended] : by_loop) {
    loop->post([ended = std::move(ended)] {
      for (const auto& request : ended) request->done.set();
    });
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& request : requests) request->state = Request::State::ended;
  }
  ended_.notify_all();
}

// Waits for write requests; returns none when other work is due.
std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::wait_for_writes(
    std::optional<int64_t> until_ns) {
  std::unique_lock lock(mutex_);
  const auto wanted = [&] { return closing_ || writer_work_ || !writes_.requests.empty(); };
  if (until_ns) {
    const int64_t left_ns = std::max<int64_t>(*until_ns - clock_.steady_ns(), 0);
    writes_.wanted.wait_for(lock, std::chrono::nanoseconds(left_ns), wanted);
  } else {
    writes_.wanted.wait(lock, wanted);
  }
  writer_work_ = false;
  return pop_front(writes_, kBatchMax);
}

void SqliteStore::write_loop(DbConnection& connection) {
  std::optional<int64_t> flush_due_ns;
  for (;;) {
    const auto requests = wait_for_writes(flush_due_ns);
    const std::lock_guard lock(writing_);
    if (!requests.empty()) connection.write(*this, requests);
    finish(requests);
    connection.do_deferred_work(clock_.steady_ns());
    flush_due_ns = connection.flush_due_ns();
    if (!requests.empty()) continue;
    const std::lock_guard closing(mutex_);
    if (closing_ && writes_.requests.empty()) break;
  }
  (void)connection.flush();
}

// Runs a write request in the loop's thread; false if the writer is busy.
bool SqliteStore::write_now(const std::shared_ptr<Request>& request) {
  const std::unique_lock writing(writing_, std::try_to_lock);
  if (!writing) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !writes_.requests.empty()) return false;
  }
  DbConnection& connection = *connections_[0];
  const bool clean = !connection.flush_due_ns();
  connection.write(*this, {request});
  request->done.set();
  const std::lock_guard lock(mutex_);
  request->state = Request::State::ended;
  // Wakes the writer, which flushes the commit later and runs checkpoints.
  if (!clean && !connection.needs_checkpoint()) return true;
  writer_work_ = true;
  writes_.wanted.notify_one();
  return true;
}

// Runs a read request in the loop's thread with the writer's page cache; false if the writer is
// busy.
bool SqliteStore::read_now(Request& request) {
  const std::unique_lock writing(writing_, std::try_to_lock);
  if (!writing) return false;
  connections_[0]->read(request);
  return true;
}

void SqliteStore::read_loop(DbConnection& connection) {
  for (;;) {
    const auto requests = wait_for_requests(reads_, 1);
    if (requests.empty()) return;
    if (begin(*requests[0])) connection.read(*requests[0]);
    finish(requests);
  }
}

SqliteEngine::SqliteEngine(SqliteStore& store, Loop& loop, Metrics* metrics)
    : store_(store), loop_(loop), reports_damage_(metrics != nullptr) {
  if (metrics == nullptr) return;
  store_.report_damage(
      &metrics->gauge("ff_kv_damaged", "Whether the file of the store is damaged: 0 or 1"));
}

SqliteEngine::~SqliteEngine() {
  if (reports_damage_) store_.report_damage(nullptr);
}

Task<Result<void>> SqliteEngine::run(TxnFunction function, int64_t deadline_ns) {
  return submit(Kind::write_durable, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::run_async_commit(TxnFunction function, int64_t deadline_ns) {
  return submit(Kind::write, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::sync(int64_t deadline_ns) {
  return submit(Kind::write_durable, nullptr, deadline_ns);
}

Task<Result<void>> SqliteEngine::view(TxnFunction function, int64_t deadline_ns) {
  return submit(Kind::read, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::view_inline(TxnFunction function, int64_t deadline_ns) {
  SqliteStore::Request request(loop_, std::move(function), deadline_ns, false);
  if (!store_.begin(request) || store_.read_now(request)) co_return request.result;
  if (reader_ == nullptr) {
    FF_CO_TRY(reader_, store_.connections_[0]->open_another());
    FF_CO_TRY(reader_->enlarge_cache());
  }
  reader_->read(request);
  co_return request.result;
}

Task<Result<void>> SqliteEngine::submit(Kind kind, TxnFunction function, int64_t deadline_ns) {
  if (const CancellationToken* cancel = co_await current_cancellation();
      cancel && cancel->requested()) {
    co_return cancel->reason();
  }
  auto request = std::make_shared<SqliteStore::Request>(loop_, std::move(function), deadline_ns,
                                                        kind == Kind::write_durable);
  // The function refers to objects of its caller: it must not run after this frame is destroyed.
  struct Withdrawal {
    SqliteStore& store;
    const std::shared_ptr<SqliteStore::Request>& request;
    ~Withdrawal() { store.withdraw(request); }
  };
  const Withdrawal withdrawal{store_, request};
  if (kind == Kind::read) {
    store_.add(store_.reads_, {request});
  } else {
    gathered_.push_back(request);
    loop_.wake_at_turn_end(*this);
  }
  (void)co_await wait_for(request->done).shielded();
  co_return request->result;
}

void SqliteEngine::on_wake() {
  Requests requests = std::exchange(gathered_, {});
  const bool alone = requests.size() == 1 && !requests.front()->durable;
  if (alone && store_.write_now(requests.front())) return;
  store_.add(store_.writes_, std::move(requests));
}

}  // namespace ff::kv
