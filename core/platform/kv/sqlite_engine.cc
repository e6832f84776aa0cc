// sqlite_engine.cc: the queues between loops and threads, and what a thread does with a request.
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
#include "platform/kv/seal.h"

namespace ff::kv {

namespace {

// Functions that share one transaction and one sync. Above some hundred the sync no longer counts,
// and fewer keep the loop at work on the answers while the writer is on the next.
constexpr size_t kBatchMax = 128;

// Of the connection that writes. 64 MiB of pages kept in memory: keys that lie far apart each want
// a page. Readers would gain nothing: SQLite drops all their pages whenever somebody has written.
constexpr const char* kOfTheWriter = "PRAGMA cache_size = -65536";
// 32 MiB of log before it is copied into the file: a page that changes often is copied once.
constexpr int kLogPages = 8192;
// What nobody has waited for is durable after this.
constexpr int64_t kSoonNs = 100 * kMillisecond;

constexpr const char* kMigrations[] = {
    "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
    // Where the store is, and where each generation began.
    "CREATE TABLE place (one INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT;"
    "INSERT INTO place VALUES (1, 0);"
    "CREATE TABLE generations (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, "
    "position INTEGER NOT NULL) STRICT",
    // Values are sealed from now on: Session::seal_all() moves those of before.
    // The table says which seals they are, and keeps this from being done twice.
    "CREATE TABLE seals (format INTEGER NOT NULL) STRICT;"
    "INSERT INTO seals VALUES (1);"
    "ALTER TABLE kv RENAME TO unsealed;"
    "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
};
// Of a transaction that moves records.
constexpr size_t kSealedAtOnce = 10'000;

}  // namespace

// A function under way. `result` and `state` belong to the store's mutex until it is done.
struct SqliteStore::Request {
  enum class State : uint8_t { waiting, running, ended };  // ended also: withdrawn

  Request(Loop& of, Function what, int64_t until_ns, bool waits)
      : loop(of), function(std::move(what)), deadline_ns(until_ns), durable(waits), done(of) {}

  Loop& loop;
  Function function;  // none: nothing but what was written before is to be durable
  const int64_t deadline_ns;
  const bool durable;  // before it is answered
  State state = State::waiting;
  Result<void> result;
  Event done;  // the loop's
};

// A connection to the file, and the transactions of one thread on it.
class SqliteStore::Session {
 public:
  static Result<std::unique_ptr<Session>> open(const std::string& path, Clock& clock,
                                               db::OpenOptions options) {
    FF_TRY(auto database, db::Database::open(path, kMigrations, clock, options));
    FF_TRY(database.run(kOfTheWriter));
    database.checkpoint_by_hand();
    return on(std::move(database));
  }
  // For another thread: the file has been checked already.
  Result<std::unique_ptr<Session>> another() {
    FF_TRY(auto database, database_.another());
    return on(std::move(database));
  }
  const std::string& moved_aside() const { return database_.moved_aside(); }

  // Records of before seals get one. Whoever is killed meanwhile goes on where he was.
  Result<void> seal_all(bool owned) {
    FF_TRY(auto looking, database_.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'unsealed'"));
    FF_TRY(bool more, looking.step());
    if (!more) return {};
    FF_TRY(looking.run());
    if (!owned) {
      return Error{Errc::failed,
                   fmt::format("{}: not all of its records are of this version", database_.path()),
                   "Start its daemon, which goes on to bring them forward."};
    }
    FF_TRY(auto first, database_.prepare("SELECT key, value FROM unsealed ORDER BY key LIMIT ?"));
    FF_TRY(auto erase, database_.prepare("DELETE FROM unsealed WHERE key <= ?"));
    while (more) {
      FF_TRY(auto transaction, database_.begin());
      std::string last;
      first.bind(kSealedAtOnce);
      size_t count = 0;
      for (;; count++) {
        FF_TRY(const bool row, first.step());
        if (!row) break;
        last = as_text(first.blob(0));
        put_.bind(as_bytes(last), as_bytes(sealed(last, as_text(first.blob(1)))));
        FF_TRY(put_.run());
      }
      erase.bind(as_bytes(last));
      FF_TRY(erase.run());
      FF_TRY(transaction.commit());
      more = count == kSealedAtOnce;
    }
    FF_TRY(database_.run("DROP TABLE unsealed"));
    return database_.flush();
  }
  // What is found is durable (db::Database::open), and so is the new generation.
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
    if (!placed) return fail(Errc::corrupt, "{}: it has lost its position", database_.path());
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
  Mark mark() const { return began_.empty() ? Mark() : Mark{began_.back().generation, committed_}; }
  std::optional<uint64_t> durable(uint64_t generation) const {
    const auto found = std::ranges::find(began_, generation, &Mark::generation);
    if (found == began_.end()) return std::nullopt;
    if (std::next(found) == began_.end()) return durable_;
    return std::next(found)->position;
  }

  // All in one SQLite transaction, in order. One that cannot be stored must not spoil the others:
  // then each has a transaction of its own.
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
  // When what nobody waits for is to be durable; nothing: it is.
  std::optional<int64_t> due_ns() const {
    if (!unsynced_ns_) return std::nullopt;
    return *unsynced_ns_ + kSoonNs;
  }
  bool wants_tidying() const { return database_.log_pages() >= kLogPages; }
  // What has been put off, as far as it is time.
  void tidy(int64_t now_ns) {
    if (unsynced_ns_ && now_ns >= *unsynced_ns_ + kSoonNs) (void)flush();
    if (database_.log_pages() < kLogPages) return;
    const auto copied = database_.checkpoint();
    if (!copied) log_warning("the log cannot be copied", {{"cause", copied.error().message}});
  }
  // After a sync that failed the kernel may have dropped what was written.
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
    broken_->hint = std::string("Look at the disk, then start the daemon again.");
    log_error("what was written may be lost", {{"cause", broken_->message}});
    return *broken_;
  }
  void read(Request& request) {
    auto transaction = database_.begin_reading();
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
    Transaction(Session& session, size_t reads_max) : Txn(reads_max), session_(session) {}

   private:
    Task<Result<std::optional<std::string>>> fetch(std::string key, bool) override {
      co_return session_.get(key);
    }
    Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
      co_return session_.range(range, guard == kWithDamaged);
    }
    Session& session_;
  };

  static Result<std::unique_ptr<Session>> on(db::Database database) {
    FF_TRY(auto get,
           database.prepare("SELECT key, value FROM kv WHERE key >= ? ORDER BY key LIMIT 1"));
    FF_TRY(auto before,
           database.prepare("SELECT key, value FROM kv WHERE key < ? ORDER BY key DESC LIMIT 1"));
    FF_TRY(auto range, database.prepare("SELECT key, value FROM kv WHERE key >= ? ORDER BY key"));
    FF_TRY(auto put, database.prepare("REPLACE INTO kv (key, value) VALUES (?, ?)"));
    FF_TRY(auto erase, database.prepare("DELETE FROM kv WHERE key = ?"));
    FF_TRY(auto place, database.prepare("UPDATE place SET position = ? WHERE one = 1"));
    return std::unique_ptr<Session>(
        new Session(std::move(database), {std::move(get), std::move(before), std::move(range),
                                          std::move(put), std::move(erase), std::move(place)}));
  }
  struct Statements {
    db::Statement get, before, range, put, erase, place;
  };
  Session(db::Database database, Statements statements)
      : database_(std::move(database)),
        get_(std::move(statements.get)),
        before_(std::move(statements.before)),
        range_(std::move(statements.range)),
        put_(std::move(statements.put)),
        erase_(std::move(statements.erase)),
        place_(std::move(statements.place)) {}

  // What a statement reads stays as it is until it starts over.
  struct Rows {
    explicit Rows(db::Statement& of) : statement(of) {}
    ~Rows() { statement.reset(); }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    db::Statement& statement;
  };
  // A record that is not found may be there under another key, if a bit of that has flipped: then
  // one of those beside its place is damaged.
  static Result<void> check(const db::Statement& row) {
    const std::string_view key = as_text(row.blob(0));
    if (seal_fits(key, as_text(row.blob(1)))) return {};
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
      // One that is damaged does not say where the range ends.
      const bool behind = key >= range.end;
      const bool damaged = behind && !seal_fits(key, as_text(range_.blob(1)));
      if (damaged && !with_damaged) return damaged_record(key);
      if (behind && !damaged) return entries;
      entries.push_back({std::string(key), std::string(as_text(range_.blob(1)))});
      if (entries.size() >= range.limit) return entries;
    }
  }
  Result<void> apply(const Txn::Writes& writes) {
    for (const auto& [key, value] : writes) {
      if (value) {
        const std::string stored = sealed(key, *value);
        put_.bind(db::Borrowed{as_bytes(key)}, db::Borrowed{as_bytes(stored)});
        FF_TRY(put_.run());
      } else {
        erase_.bind(db::Borrowed{as_bytes(key)});
        FF_TRY(erase_.run());
      }
    }
    return {};
  }
  // An error is the store's: no request has left anything then. Those of functions are in results.
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
  std::optional<int64_t> unsynced_ns_;  // since when something is not durable
  std::optional<Error> broken_;         // nothing is written any more
  db::Statement get_;
  db::Statement before_;
  db::Statement range_;
  db::Statement put_;
  db::Statement erase_;
  db::Statement place_;
  // Of the writer: positions, and where each generation began. Loops read them meanwhile.
  std::atomic<uint64_t> committed_ = 0;
  std::atomic<uint64_t> durable_ = 0;
  std::vector<Mark> began_;
};

namespace {

// Whoever only looks brings nothing forward under the daemon that has the file.
Result<void> check_schema(const std::string& path, Clock& clock) {
  const std::span<const char* const> all = kMigrations;
  for (size_t version = 1; version < all.size(); version++) {
    const auto opened = db::Database::open(path, all.first(version), clock, {});
    if (opened) {
      return Error{
          Errc::failed,
          fmt::format("{}: its schema has version {}, older than {}", path, version, all.size()),
          "Start its daemon with this ff first, which brings it forward."};
    }
    if (opened.error().code != Errc::newer_format) return opened.error();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path, Clock& clock,
                                                       Options options) {
  if (!options.owned) FF_TRY(check_schema(path, clock));
  FF_TRY(auto writer,
         Session::open(path, clock,
                       {.on_corrupt = options.on_corrupt, .synchronous = db::Synchronous::normal}));
  FF_TRY(writer->seal_all(options.owned));
  if (options.owned) FF_TRY(writer->begin_generation());
  std::unique_ptr<SqliteStore> store(new SqliteStore(clock, writer->moved_aside()));
  store->sessions_.push_back(std::move(writer));
  for (unsigned i = 0; i < options.readers; i++) {
    FF_TRY(auto reader, store->sessions_[0]->another());
    store->sessions_.push_back(std::move(reader));
  }
  store->threads_.emplace_back([&of = *store] { of.write_loop(*of.sessions_[0]); });
  for (unsigned i = 0; i < options.readers; i++) {
    store->threads_.emplace_back([&of = *store, i] { of.read_loop(*of.sessions_[i + 1]); });
  }
  return store;
}

SqliteStore::SqliteStore(Clock& clock, std::string moved_aside)
    : clock_(clock), moved_aside_(std::move(moved_aside)) {}

SqliteStore::~SqliteStore() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  writes_.wanted.notify_all();
  reads_.wanted.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Mark SqliteStore::mark() const { return sessions_[0]->mark(); }

std::optional<uint64_t> SqliteStore::durable(uint64_t generation) const {
  return sessions_[0]->durable(generation);
}

void SqliteStore::add(Queue& queue, std::vector<std::shared_ptr<Request>> requests) {
  {
    const std::lock_guard lock(mutex_);
    std::move(requests.begin(), requests.end(), std::back_inserter(queue.requests));
  }
  queue.wanted.notify_one();
}

// Whether the request's task is still there; from now on it waits for the request's end.
bool SqliteStore::hold(Request& request) {
  const std::lock_guard lock(mutex_);
  if (request.state == Request::State::ended) return false;
  request.state = Request::State::running;
  return true;
}

// Whether the function shall run: nobody has withdrawn it, and there is time.
bool SqliteStore::begin(Request& request) {
  if (!hold(request)) return false;
  if (clock_.steady_ns() < request.deadline_ns) return true;
  request.result = fail(Errc::deadline, "the store did not come to a transaction in time");
  return false;
}

// Returns when the function will not run, or will not run again.
void SqliteStore::withdraw(const std::shared_ptr<Request>& request) {
  std::unique_lock lock(mutex_);
  if (request->state == Request::State::waiting) request->state = Request::State::ended;
  ended_.wait(lock, [&] { return request->state == Request::State::ended; });
}

// Requests to run now; none when the store is closing.
std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::take(Queue& queue, size_t most) {
  std::unique_lock lock(mutex_);
  queue.wanted.wait(lock, [&] { return closing_ || !queue.requests.empty(); });
  return first_of(queue, most);
}

std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::first_of(Queue& queue,
                                                                         size_t most) {
  const auto first = queue.requests.begin();
  const auto last = first + static_cast<ptrdiff_t>(std::min(most, queue.requests.size()));
  std::vector<std::shared_ptr<Request>> taken(first, last);
  queue.requests.erase(first, last);
  return taken;
}

// Once a request has ended its task may go, and its loop with it: the loops are told before, and
// only of those that nobody has withdrawn.
void SqliteStore::finish(const std::vector<std::shared_ptr<Request>>& requests) {
  std::map<Loop*, std::vector<std::shared_ptr<Request>>> by_loop;  // one wake-up for each
  for (const auto& request : requests) {
    if (hold(*request)) by_loop[&request->loop].push_back(request);
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

// Requests to write now; none when it is time for something else.
std::vector<std::shared_ptr<SqliteStore::Request>> SqliteStore::take_writes(
    std::optional<int64_t> until_ns) {
  std::unique_lock lock(mutex_);
  const auto wanted = [&] { return closing_ || woken_ || !writes_.requests.empty(); };
  if (until_ns) {
    const int64_t left_ns = std::max<int64_t>(*until_ns - clock_.steady_ns(), 0);
    writes_.wanted.wait_for(lock, std::chrono::nanoseconds(left_ns), wanted);
  } else {
    writes_.wanted.wait(lock, wanted);
  }
  woken_ = false;
  return first_of(writes_, kBatchMax);
}

void SqliteStore::write_loop(Session& session) {
  std::optional<int64_t> due_ns;
  for (;;) {
    const auto requests = take_writes(due_ns);
    const std::lock_guard lock(writing_);
    if (!requests.empty()) session.write(*this, requests);
    finish(requests);
    session.tidy(clock_.steady_ns());
    due_ns = session.due_ns();
    if (!requests.empty()) continue;
    const std::lock_guard closing(mutex_);
    if (closing_ && writes_.requests.empty()) break;
  }
  (void)session.flush();
}

// In the loop's thread, if the writer has nothing to do. False: it has.
bool SqliteStore::write_now(const std::shared_ptr<Request>& request) {
  const std::unique_lock writing(writing_, std::try_to_lock);
  if (!writing) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !writes_.requests.empty()) return false;
  }
  Session& session = *sessions_[0];
  const bool clean = !session.due_ns();
  session.write(*this, {request});
  request->done.set();
  const std::lock_guard lock(mutex_);
  request->state = Request::State::ended;
  // The writer is to make it durable after a while, and keeps the log short.
  if (!clean && !session.wants_tidying()) return true;
  woken_ = true;
  writes_.wanted.notify_one();
  return true;
}

// In the loop's thread, with the pages that the writer has, if it has nothing to do. False: it has.
bool SqliteStore::read_now(Request& request) {
  const std::unique_lock writing(writing_, std::try_to_lock);
  if (!writing) return false;
  sessions_[0]->read(request);
  return true;
}

void SqliteStore::read_loop(Session& session) {
  for (;;) {
    const auto requests = take(reads_, 1);
    if (requests.empty()) return;
    if (begin(*requests[0])) session.read(*requests[0]);
    finish(requests);
  }
}

SqliteEngine::SqliteEngine(SqliteStore& store, Loop& loop) : store_(store), loop_(loop) {}
SqliteEngine::~SqliteEngine() = default;

Task<Result<void>> SqliteEngine::run(Function function, int64_t deadline_ns) {
  return submit(Kind::write_durable, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::run_soon(Function function, int64_t deadline_ns) {
  return submit(Kind::write, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::sync(int64_t deadline_ns) {
  return submit(Kind::write_durable, nullptr, deadline_ns);
}

Task<Result<void>> SqliteEngine::view(Function function, int64_t deadline_ns) {
  return submit(Kind::read, std::move(function), deadline_ns);
}

Task<Result<void>> SqliteEngine::look(Function function, int64_t deadline_ns) {
  SqliteStore::Request request(loop_, std::move(function), deadline_ns, false);
  if (!store_.begin(request) || store_.read_now(request)) co_return request.result;
  if (reader_ == nullptr) {
    FF_CO_TRY(reader_, store_.sessions_[0]->another());
  }
  reader_->read(request);
  co_return request.result;
}

Task<Result<void>> SqliteEngine::submit(Kind kind, Function function, int64_t deadline_ns) {
  if (const Cancel* cancel = co_await current_cancel(); cancel && cancel->requested()) {
    co_return cancel->reason();
  }
  auto request = std::make_shared<SqliteStore::Request>(loop_, std::move(function), deadline_ns,
                                                        kind == Kind::write_durable);
  // The function refers to what its caller holds: it must not run once this frame is gone.
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
    loop_.wake_late(*this);
  }
  auto ending = wait_for(request->done);
  (void)co_await std::move(ending).shielded();
  co_return request->result;
}

void SqliteEngine::fire() {
  Requests requests = std::exchange(gathered_, {});
  const bool alone = requests.size() == 1 && !requests.front()->durable;
  if (alone && store_.write_now(requests.front())) return;
  store_.add(store_.writes_, std::move(requests));
}

}  // namespace ff::kv
