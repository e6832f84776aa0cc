// postgres_engine.cc: reads gathered into statements, commits gathered into groups, and the fence
// against late groups.
#include "platform/kv/postgres_engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/kv/record_checksum.h"

namespace ff::kv {

namespace {

constexpr size_t kReaders = 2;      // connections that serve reads
constexpr size_t kSnapshotMax = 4;  // connections of long views
constexpr size_t kReadsAtOnce = 256;
constexpr size_t kGroupMax = 256;  // transactions of one group
constexpr size_t kGroupBytes = 4 * kMiB;
// A view that has read more keys reads from a snapshot.
constexpr size_t kRecheckedMax = 128;
// A view that met so many changes reads from a snapshot.
constexpr int kOutdatedMax = 3;

constexpr int64_t kFormat = 1;

// Creates the tables, format 1. `version` comes first, where it needs no padding. fillfactor leaves
// room in each page for changed rows, so that the index needs no change (HOT updates).
constexpr std::string_view kTables[] = {
    "SELECT pg_advisory_xact_lock(1717990774)",
    "CREATE TABLE IF NOT EXISTS ff_kv (version bigint NOT NULL, key bytea PRIMARY KEY, value bytea "
    "NOT NULL) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)",
    "CREATE TABLE IF NOT EXISTS ff_fence (name text PRIMARY KEY, epoch bigint NOT NULL, touched "
    "timestamptz NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ff_format (format bigint NOT NULL)",
    "INSERT INTO ff_format SELECT 1 WHERE NOT EXISTS (SELECT FROM ff_format)",
};

// Groups of all engines run one after the other.
constexpr std::string_view kLock = "SELECT pg_advisory_xact_lock(1717990774)";

// Keys with the version that they shall have ($2; NULL: any). Rows: index, version, value; without
// keys that still have theirs. The subquery with its LIMIT makes it one look into the index a key.
constexpr std::string_view kLook =
    "SELECT w.i, kv.version, kv.value FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS "
    "w(key, expected, i) LEFT JOIN LATERAL (SELECT version, value FROM ff_kv WHERE ff_kv.key = "
    "w.key LIMIT 1) kv ON true WHERE w.expected IS NULL OR coalesce(kv.version, 0) <> w.expected";
// The same together with the first $5 keys in [$3, $4): rows with index -1 and a key.
constexpr std::string_view kLookAndRange =
    "SELECT w.i, kv.version, kv.value, NULL::bytea FROM unnest($1::bytea[], $2::bigint[]) WITH "
    "ORDINALITY AS w(key, expected, i) LEFT JOIN LATERAL (SELECT version, value FROM ff_kv WHERE "
    "ff_kv.key = w.key LIMIT 1) kv ON true WHERE w.expected IS NULL OR coalesce(kv.version, 0) <> "
    "w.expected UNION ALL SELECT -1, r.version, r.value, r.key FROM (SELECT version, value, key "
    "FROM ff_kv WHERE key >= $3::bytea AND key < $4::bytea ORDER BY key LIMIT $5::bigint) r";
// The same with several ranges: rows of the n-th one have index -n.
constexpr std::string_view kLookAndRanges =
    "SELECT w.i, kv.version, kv.value, NULL::bytea FROM unnest($1::bytea[], $2::bigint[]) WITH "
    "ORDINALITY AS w(key, expected, i) LEFT JOIN LATERAL (SELECT version, value FROM ff_kv WHERE "
    "ff_kv.key = w.key LIMIT 1) kv ON true WHERE w.expected IS NULL OR coalesce(kv.version, 0) <> "
    "w.expected UNION ALL SELECT -q.n, r.version, r.value, r.key FROM unnest($3::bytea[], "
    "$4::bytea[], $5::bigint[]) WITH ORDINALITY AS q(first, behind, most, n), LATERAL (SELECT "
    "version, value, key FROM ff_kv WHERE key >= q.first AND key < q.behind ORDER BY key LIMIT "
    "q.most) r";

// A group: the fence ($1, $2), what its transactions have read (index of the transaction, key,
// version; $3 to $5), what they write (index, key, value or NULL; $6 to $8), the new version ($9).
// Rows: the transactions that do not hold any more; -1 if the fence has changed.
constexpr std::string_view kCommit =
    "WITH fence AS MATERIALIZED (SELECT FROM ff_fence WHERE name = $1::text AND epoch = "
    "$2::bigint), bad AS MATERIALIZED (SELECT DISTINCT w.op FROM unnest($3::bigint[], "
    "$4::bytea[], $5::bigint[]) AS w(op, key, version) LEFT JOIN LATERAL (SELECT version FROM "
    "ff_kv WHERE ff_kv.key = w.key LIMIT 1) kv ON true WHERE coalesce(kv.version, 0) <> "
    "w.version), last AS MATERIALIZED (SELECT DISTINCT ON (w.key) w.key, w.value FROM "
    "unnest($6::bigint[], $7::bytea[], $8::bytea[]) AS w(op, key, value) WHERE w.op NOT IN (SELECT "
    "op FROM bad) AND EXISTS (SELECT FROM fence) ORDER BY w.key, w.op DESC), erased AS (DELETE "
    "FROM ff_kv WHERE key = ANY (ARRAY(SELECT key FROM last WHERE value IS NULL))), stored AS "
    "(INSERT INTO ff_kv (version, key, value) SELECT $9::bigint, key, value FROM last WHERE value "
    "IS NOT NULL ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = "
    "excluded.value) SELECT op FROM bad UNION ALL SELECT -1 WHERE NOT EXISTS (SELECT FROM fence)";

// Errors after which another attempt may succeed.
bool may_be_repeated(const Error& error) {
  return error.code == Errc::unreachable || error.code == Errc::stale;
}

using Looks = std::vector<std::pair<std::string_view, std::optional<int64_t>>>;

// The parameters $1 and $2 of kLook.
std::vector<PostgresValue> look_values(const Looks& looks) {
  std::vector<std::optional<std::string_view>> keys;
  std::vector<std::optional<int64_t>> expected;
  for (const auto& [key, version] : looks) {
    keys.emplace_back(key);
    expected.push_back(version);
  }
  return {postgres_byte_strings(keys), postgres_numbers(expected)};
}

PostgresStatement range_statement(const Looks& looks, const std::vector<Range>& ranges) {
  std::vector<std::optional<std::string_view>> begins, ends;
  std::vector<std::optional<int64_t>> limits;
  for (const Range& range : ranges) {
    begins.emplace_back(range.begin);
    ends.emplace_back(range.end);
    limits.emplace_back(static_cast<int64_t>(std::min<size_t>(range.limit, INT64_MAX)));
  }
  const bool one = ranges.size() == 1;
  PostgresStatement look{one ? "range" : "ranges", one ? kLookAndRange : kLookAndRanges,
                         look_values(looks)};
  look.values.push_back(one ? PostgresValue(ranges[0].begin) : postgres_byte_strings(begins));
  look.values.push_back(one ? PostgresValue(ranges[0].end) : postgres_byte_strings(ends));
  look.values.push_back(one ? postgres_number(*limits[0]) : postgres_numbers(limits));
  return look;
}

}  // namespace

// A connection that is opened when it is needed, and again after an error.
class PostgresEngine::ServerConnection {
 public:
  ServerConnection(PostgresEngine& engine, std::string label)
      : engine_(engine), label_(std::move(label)) {}

  // Opens the connection if there is none.
  Task<Result<void>> connect() {
    if (connection_ != nullptr && connection_->is_broken()) connection_.reset();
    if (connection_ != nullptr) co_return Result<void>();
    auto opened = co_await open();
    if (!opened) engine_.note_failure(opened.error());
    co_return opened;
  }
  Task<Result<std::vector<PostgresRows>>> run(std::vector<PostgresStatement> statements) {
    FF_CO_TRY(co_await connect());
    auto rows = co_await connection_->run(std::move(statements));
    if (rows) {
      engine_.note_success();
    } else {
      connection_.reset();
      if (may_be_repeated(rows.error())) engine_.note_failure(rows.error());
    }
    co_return rows;
  }

  bool busy = false;  // a task serves with it

 private:
  Task<Result<void>> open() {
    FF_CO_TRY(auto made,
              co_await PostgresConnection::open(engine_.loop_, engine_.options_, label_));
    FF_CO_TRY(co_await check_format(*made));
    connection_ = std::move(made);
    co_return Result<void>();
  }
  // Creates the tables if there are none. Whatever an administrator has set for this user or
  // database: commits must be durable when they are acknowledged; and the statement after the lock
  // must see what was committed before the lock was free (READ COMMITTED).
  Task<Result<void>> check_format(PostgresConnection& connection) {
    std::vector<PostgresStatement> asking;
    asking.push_back({"", "SELECT (to_regclass('ff_format') IS NOT NULL)::int::bigint"});
    asking.push_back({"",
                      "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                      "current_setting('synchronous_commit') = 'off'"});
    asking.push_back({"", "SET default_transaction_isolation = 'read committed'"});
    FF_CO_TRY(const auto asked, co_await connection.run(std::move(asking)));
    std::vector<PostgresStatement> reading;
    if (asked.at(0).number(0, 0) == 0) {
      for (const std::string_view sql : kTables) reading.push_back({"", sql});
    }
    reading.push_back({"", "SELECT max(format) FROM ff_format"});
    FF_CO_TRY(const auto rows, co_await connection.run(std::move(reading)));
    const int64_t format = rows.back().number(0, 0);
    if (format == kFormat) co_return Result<void>();
    co_return Error{Errc::newer_format,
                    fmt::format("{}: format {} of the tables is newer than {}, the newest this ff "
                                "knows",
                                engine_.options_.name, format, kFormat),
                    "Use the ff that made it, or a newer one."};
  }

  PostgresEngine& engine_;
  const std::string label_;
  std::unique_ptr<PostgresConnection> connection_;
};

// One read of a transaction: keys, or ranges and their guards.
struct PostgresEngine::Read {
  explicit Read(Loop& loop, std::vector<std::string> wanted = {})
      : keys(std::move(wanted)), done(loop) {}

  struct Found {
    int64_t version = 0;  // 0: the key does not exist
    std::optional<std::string> value;
  };
  std::vector<std::string> keys;  // whose values are wanted; with ranges: their guards
  std::vector<Range> ranges;
  std::vector<std::pair<std::string, int64_t>> seen;  // what must still have these versions

  Result<void> result;
  bool outdated = false;                                       // something seen has changed
  std::vector<Found> found = std::vector<Found>(keys.size());  // of `keys`
  std::vector<std::vector<Entry>> entries;                     // of `ranges`
  Event done;

  Looks looks() const {
    Looks looks;
    for (const std::string& key : keys) looks.emplace_back(key, std::nullopt);
    for (const auto& [name, version] : seen) looks.emplace_back(name, version);
    return looks;
  }
  // A row about looks()[at].
  void take_look(size_t at, const PostgresRows& rows, size_t row) {
    if (at >= keys.size()) {
      outdated = true;
      return;
    }
    if (rows.is_null(row, 1)) return;
    found[at].version = rows.number(row, 1);
    found[at].value = rows.bytes(row, 2);
  }
  void take_ranges(const PostgresRows& rows) {
    entries.resize(ranges.size());
    for (size_t row = 0; row < rows.size(); row++) {
      const int64_t index = rows.number(row, 0);
      if (index > 0) {
        take_look(static_cast<size_t>(index) - 1, rows, row);
      } else {
        entries.at(static_cast<size_t>(-index) - 1)
            .push_back({std::string(rows.bytes(row, 3)), std::string(rows.bytes(row, 2))});
      }
    }
    for (auto& one : entries) std::ranges::sort(one, {}, &Entry::key);  // UNION promises no order
  }
};

class PostgresEngine::Transaction final : public Txn {
 public:
  Transaction(PostgresEngine& engine, size_t reads_max, int64_t deadline_ns)
      : Txn(reads_max), engine_(engine), deadline_ns_(deadline_ns) {}

  // What the function has read has changed meanwhile: it must run again.
  bool outdated() const { return outdated_; }
  // It reads more than can be compared.
  bool needs_snapshot() const { return needs_snapshot_; }
  std::vector<std::pair<std::string, int64_t>> watched() const {
    std::vector<std::pair<std::string, int64_t>> watched;
    for (const auto& [key, seen] : seen_) {
      if (seen.watched) watched.emplace_back(key, seen.version);
    }
    return watched;
  }

 private:
  struct Seen {
    int64_t version = 0;
    bool watched = false;
  };

  Task<Result<std::optional<std::string>>> fetch(std::string key, bool watched) override {
    std::vector<std::string> one(1, key);
    const auto read = std::make_shared<Read>(engine_.loop_, std::move(one));
    FF_CO_TRY(co_await look(read));
    see(std::move(key), read->found[0].version, watched);
    co_return std::move(read->found[0].value);
  }

  Task<Result<std::vector<std::optional<std::string>>>> fetch_all(
      std::vector<std::string> keys) override {
    const auto read = std::make_shared<Read>(engine_.loop_, std::move(keys));
    FF_CO_TRY(co_await look(read));
    std::vector<std::optional<std::string>> values;
    for (size_t i = 0; i < read->keys.size(); i++) {
      see(read->keys[i], read->found[i].version, true);
      values.push_back(std::move(read->found[i].value));
    }
    co_return values;
  }

  Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
    if (range.begin >= range.end) co_return std::vector<Entry>();
    const bool guarded = !guard.empty() && guard != kIncludeDamaged;
    std::vector<std::string> guards(guarded ? 1 : 0, guard);
    const auto read = std::make_shared<Read>(engine_.loop_, std::move(guards));
    read->ranges.push_back(std::move(range));
    FF_CO_TRY(co_await look(read));
    if (guarded) {
      see(std::move(guard), read->found[0].version, true);
    } else {
      unguarded_ = true;
    }
    co_return std::move(read->entries[0]);
  }

  Task<Result<std::vector<std::vector<Entry>>>> fetch_ranges(
      std::vector<GuardedRange> ranges) override {
    std::vector<std::string> guards;
    for (GuardedRange& one : ranges) {
      if (!one.guard.empty()) guards.push_back(std::move(one.guard));
    }
    const bool guarded = guards.size() == ranges.size();
    const auto read = std::make_shared<Read>(engine_.loop_, std::move(guards));
    for (GuardedRange& one : ranges) read->ranges.push_back(std::move(one.range));
    FF_CO_TRY(co_await look(read));
    for (size_t i = 0; i < read->keys.size(); i++) {
      see(read->keys[i], read->found[i].version, true);
    }
    unguarded_ = unguarded_ || !guarded;
    co_return std::move(read->entries);
  }

  Task<Result<void>> look(ReadPtr read) {
    needs_snapshot_ = needs_snapshot_ || unguarded_ || seen_.size() > kRecheckedMax;
    if (needs_snapshot_) co_return fail(Errc::stale, "this function needs a snapshot");
    for (const auto& [key, seen] : seen_) read->seen.emplace_back(key, seen.version);
    FF_CO_TRY(co_await engine_.read(read, deadline_ns_));
    outdated_ = outdated_ || read->outdated;
    if (outdated_) co_return fail(Errc::stale, "the records have changed meanwhile");
    co_return Result<void>();
  }
  void see(std::string key, int64_t version, bool watched) {
    Seen& seen = seen_[std::move(key)];
    seen.version = version;
    seen.watched = seen.watched || watched;
  }

  PostgresEngine& engine_;
  const int64_t deadline_ns_;
  bool outdated_ = false;
  bool unguarded_ = false;  // it has read a range without a guard
  bool needs_snapshot_ = false;
  std::map<std::string, Seen> seen_;
};

// Reads in a transaction of the server.
class PostgresEngine::SnapshotTransaction final : public Txn {
 public:
  SnapshotTransaction(ServerConnection& connection, Loop& loop, int64_t deadline_ns)
      : Txn(kNoLimit), connection_(connection), loop_(loop), deadline_ns_(deadline_ns) {}

  // The server has given the transaction up: the function must run again.
  const std::optional<Error>& lost() const { return lost_; }
  Task<Result<std::vector<PostgresRows>>> run(PostgresStatement statement) {
    std::vector<PostgresStatement> one;
    one.push_back(std::move(statement));
    auto rows = co_await with_deadline(loop_, deadline_ns_, "the deadline of a scan has passed",
                                       connection_.run(std::move(one)));
    if (!rows && may_be_repeated(rows.error())) lost_ = rows.error();
    co_return rows;
  }

 private:
  Task<Result<std::optional<std::string>>> fetch(std::string key, bool) override {
    std::vector<std::string> one(1, std::move(key));
    FF_CO_TRY(auto values, co_await fetch_all(std::move(one)));
    co_return std::move(values[0]);
  }
  Task<Result<std::vector<std::optional<std::string>>>> fetch_all(
      std::vector<std::string> keys) override {
    Read read(loop_, std::move(keys));
    PostgresStatement look{"look", kLook, look_values(read.looks())};
    FF_CO_TRY(const auto rows, co_await run(std::move(look)));
    const PostgresRows& found = rows.at(0);
    for (size_t row = 0; row < found.size(); row++) {
      read.take_look(static_cast<size_t>(found.number(row, 0)) - 1, found, row);
    }
    std::vector<std::optional<std::string>> values;
    for (Read::Found& one : read.found) values.push_back(std::move(one.value));
    co_return values;
  }
  Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string) override {
    if (range.begin >= range.end) co_return std::vector<Entry>();
    Read read(loop_);
    read.ranges.push_back(std::move(range));
    auto look = range_statement(Looks(), read.ranges);
    FF_CO_TRY(const auto rows, co_await run(std::move(look)));
    read.take_ranges(rows.at(0));
    co_return std::move(read.entries[0]);
  }

  ServerConnection& connection_;
  Loop& loop_;
  const int64_t deadline_ns_;
  std::optional<Error> lost_;
};

// A transaction that waits for its commit. The task that waits for it may end before.
struct PostgresEngine::Commit {
  explicit Commit(Loop& loop) : done(loop) {}

  std::vector<std::pair<std::string, int64_t>> watched;  // keys and their versions
  Txn::Writes writes;                                    // values with checksums
  size_t bytes = 0;
  bool sent = false;
  bool alone = false;  // in a group of its own, after the server has refused one with others
  Result<AttemptResult> result = AttemptResult::conflict;
  Event done;

  void finish(Result<AttemptResult> outcome) {
    result = std::move(outcome);
    done.set();
  }
  bool reads_any_of(const std::unordered_set<std::string_view>& keys) const {
    return std::ranges::any_of(watched, [&](const auto& one) { return keys.contains(one.first); });
  }
};

PostgresEngine::Series::Series(Metrics& metrics)
    : TransactionSeries(metrics),
      groups(metrics.counter("ff_kv_groups_total", "Groups of transactions that were committed")),
      unknown(metrics.counter("ff_kv_unknown_total", "Groups whose answer was lost")),
      commit(metrics.histogram("ff_kv_commit_seconds", "Time of the commit of a group")),
      read(metrics.histogram("ff_kv_read_seconds", "Time of a statement that reads")) {}

PostgresEngine::PostgresEngine(PostgresOptions options, Loop& loop, Rng& rng, Metrics& metrics)
    : options_(std::move(options)),
      loop_(loop),
      rng_(rng),
      series_(metrics),
      fence_name_("ff commit " + rng.hex_id()),
      committer_(std::make_unique<ServerConnection>(*this, fence_name_)),
      snapshots_(loop, kSnapshotMax),
      gate_(loop) {
  for (size_t i = 0; i < kReaders; i++) {
    readers_.push_back(std::make_unique<ServerConnection>(*this, "ff read"));
  }
}

PostgresEngine::~PostgresEngine() = default;

void PostgresEngine::note_failure(const Error& error) {
  if (!failure_) log_warning("PostgreSQL does not answer", {{"error", error.message}});
  failure_ = error;
}

void PostgresEngine::note_success() {
  if (failure_) log_info("PostgreSQL answers again", {{"database", options_.name}});
  failure_.reset();
}

// What a caller gets whose deadline has passed.
Error PostgresEngine::late() const {
  if (failure_) return *failure_;
  return fail(Errc::deadline, "{}: no answer before the deadline", options_.name);
}

// Retries until a server answers.
Task<Result<void>> PostgresEngine::read(ReadPtr read, int64_t deadline_ns) {
  Backoff backoff = retry_backoff(rng_);
  for (;;) {
    read->done.reset();
    reads_.push_back(read);
    const auto idle = std::ranges::find_if(readers_, [](const auto& one) { return !one->busy; });
    if (idle != readers_.end()) {
      (*idle)->busy = true;
      gate_.spawn(serve_reads(**idle));
    }
    auto waited = co_await read->done.wait(deadline_ns);
    if (!waited) {
      std::erase(reads_, read);
      co_return waited.error().code == Errc::deadline ? late() : std::move(waited).error();
    }
    if (read->result || !may_be_repeated(read->result.error())) co_return read->result;
    FF_CO_TRY(co_await wait_before_retry(loop_, backoff, deadline_ns, read->result.error()));
  }
}

// Sends what waits, again and again, until nothing does.
Task<void> PostgresEngine::serve_reads(ServerConnection& reader) {
  while (!reads_.empty()) {
    std::vector<ReadPtr> reads;
    Looks looks;                                   // of all reads of keys
    std::vector<std::pair<Read*, size_t>> owners;  // of each look
    std::vector<Read*> ranges;
    std::vector<PostgresStatement> statements(1);
    for (; !reads_.empty() && reads.size() < kReadsAtOnce; reads_.pop_front()) {
      Read& read = *reads.emplace_back(reads_.front());
      const Looks own = read.looks();
      if (!read.ranges.empty()) {
        ranges.push_back(&read);
        statements.push_back(range_statement(own, read.ranges));
        continue;
      }
      for (size_t i = 0; i < own.size(); i++) owners.emplace_back(&read, i);
      looks.insert(looks.end(), own.begin(), own.end());
    }
    statements[0] = {"look", kLook, look_values(looks)};
    const int64_t began_ns = loop_.now_ns();
    const auto rows = co_await reader.run(std::move(statements));
    if (rows) {
      series_.read.observe_ns(loop_.now_ns() - began_ns);
      const PostgresRows& found = rows->at(0);
      for (size_t row = 0; row < found.size(); row++) {
        const auto [read, at] = owners.at(static_cast<size_t>(found.number(row, 0)) - 1);
        read->take_look(at, found, row);
      }
      for (size_t i = 0; i < ranges.size(); i++) ranges[i]->take_ranges(rows->at(i + 1));
    }
    for (const ReadPtr& read : reads) {
      read->result = rows ? Result<void>() : rows.error();
      read->done.set();
    }
  }
  reader.busy = false;
}

// As many waiting transactions as fit, in order. A transaction that has read what an earlier one
// of the group writes would fail: it waits for the outcome.
PostgresEngine::Group PostgresEngine::next_group() {
  Group group;
  std::deque<CommitPtr> left;
  std::unordered_set<std::string_view> written;
  size_t bytes = 0;
  for (const CommitPtr& commit : commits_) {
    const bool fits =
        group.empty() || (group.size() < kGroupMax && bytes < kGroupBytes && !group.front()->alone);
    if (!fits || commit->reads_any_of(written) || (commit->alone && !group.empty())) {
      left.push_back(commit);
      continue;
    }
    group.push_back(commit);
    commit->sent = true;
    bytes += commit->bytes;
    for (const auto& [key, value] : commit->writes) written.insert(key);
  }
  commits_ = std::move(left);
  return group;
}

// Waiting transactions that have read what this group has changed need no turn of their own.
void PostgresEngine::finish_conflicts(const Group& group) {
  std::unordered_set<std::string_view> written;
  for (const CommitPtr& commit : group) {
    if (!commit->result || *commit->result != AttemptResult::committed) continue;
    for (const auto& [key, value] : commit->writes) written.insert(key);
  }
  std::erase_if(commits_, [&](const CommitPtr& commit) {
    if (!commit->reads_any_of(written)) return false;
    commit->finish(AttemptResult::conflict);
    return true;
  });
}

// The outcome of each transaction is in its result; not yet if the fence has changed.
Task<Result<void>> PostgresEngine::send_group(Group& group) {
  std::vector<std::optional<int64_t>> read_ops, versions, write_ops;
  std::vector<std::optional<std::string_view>> read_keys, write_keys, values;
  for (size_t i = 0; i < group.size(); i++) {
    for (const auto& [key, version] : group[i]->watched) {
      read_ops.emplace_back(static_cast<int64_t>(i));
      read_keys.emplace_back(key);
      versions.emplace_back(version);
    }
    for (const auto& [key, value] : group[i]->writes) {
      write_ops.emplace_back(static_cast<int64_t>(i));
      write_keys.emplace_back(key);
      values.push_back(value ? std::optional<std::string_view>(*value) : std::nullopt);
    }
  }
  std::vector<PostgresStatement> statements;
  statements.push_back({"lock", kLock});
  statements.push_back({"commit", kCommit});
  statements[1].values = {fence_name_,
                          postgres_number(fence_),
                          postgres_numbers(read_ops),
                          postgres_byte_strings(read_keys),
                          postgres_numbers(versions),
                          postgres_numbers(write_ops),
                          postgres_byte_strings(write_keys),
                          postgres_byte_strings(values),
                          postgres_number(static_cast<int64_t>(rng_.next() >> 1) | 1)};
  const int64_t began_ns = loop_.now_ns();
  FF_CO_TRY(const auto rows, co_await committer_->run(std::move(statements)));
  series_.commit.observe_ns(loop_.now_ns() - began_ns);
  for (const CommitPtr& commit : group) commit->result = AttemptResult::committed;
  for (size_t row = 0; row < rows.at(1).size(); row++) {
    const int64_t index = rows.at(1).number(row, 0);
    if (index < 0) {
      fence_ = 0;
      co_return Result<void>();
    }
    group.at(static_cast<size_t>(index))->result = AttemptResult::conflict;
  }
  co_return Result<void>();
}

// After an error with which the server has executed nothing. It may be about one transaction only:
// then the others succeed in groups of their own.
void PostgresEngine::refuse_group(const Group& group, const Error& error) {
  const bool retry_alone = !may_be_repeated(error) && group.size() > 1;
  for (const CommitPtr& commit : group) {
    commit->sent = false;
    commit->alone = retry_alone;
    if (retry_alone) continue;
    commit->finish(may_be_repeated(error) ? Result(AttemptResult::conflict) : error);
  }
  if (retry_alone) commits_.insert(commits_.begin(), group.begin(), group.end());
}

// Makes the server close the connection of a lost group, which could hold the lock for long. Not
// while the group waits for a standby: it would become visible before it is safe.
Task<Result<void>> PostgresEngine::close_lost_connection() {
  std::vector<PostgresStatement> closing;
  closing.push_back(
      {"",
       "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = "
       "$1::text AND pid <> pg_backend_pid() AND usename = current_user AND wait_event IS DISTINCT "
       "FROM 'SyncRep'",
       {fence_name_}});
  const auto closed = co_await committer_->run(std::move(closing));
  if (!closed && may_be_repeated(closed.error())) co_return closed.error();
  co_return Result<void>();  // a database without this function closes it when it notices
}

Task<Result<void>> PostgresEngine::put_fence() {
  if (lost_) FF_CO_TRY(co_await close_lost_connection());
  const auto fence = static_cast<int64_t>(rng_.next() >> 1) | 1;
  std::vector<PostgresStatement> putting;
  putting.push_back({"", kLock});
  putting.push_back({"", "DELETE FROM ff_fence WHERE touched < now() - interval '1 day'"});
  putting.push_back({"",
                     "INSERT INTO ff_fence (name, epoch, touched) VALUES ($1::text, $2::bigint, "
                     "now()) ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, touched = "
                     "excluded.touched",
                     {fence_name_, postgres_number(fence)}});
  FF_CO_TRY(co_await committer_->run(std::move(putting)));
  fence_ = fence;
  lost_ = false;
  co_return Result<void>();
}

// A group that cannot be sent, because no server accepts the connection, is not lost.
Task<Result<void>> PostgresEngine::prepare_commits() {
  FF_CO_TRY(co_await committer_->connect());
  if (fence_ == 0) {
    FF_CO_TRY(co_await put_fence());
  }
  co_return Result<void>();
}

// Sends groups one after the other, until no transaction waits.
Task<void> PostgresEngine::serve_commits() {
  Backoff backoff = retry_backoff(rng_);
  Group lost;  // their outcome is not settled
  while (!commits_.empty() || !lost.empty()) {
    const auto ready = co_await prepare_commits();
    if (!ready) {
      if (lost.empty() && !may_be_repeated(ready.error())) {
        for (const CommitPtr& commit : std::exchange(commits_, {})) commit->finish(ready.error());
      } else if (!co_await sleep_for(loop_, backoff.next_delay_ns())) {
        co_return;
      }
      continue;
    }
    backoff.reset();
    for (const CommitPtr& commit : std::exchange(lost, {})) commit->finish(AttemptResult::unknown);
    if (commits_.empty()) continue;
    Group group = next_group();
    const auto sent = co_await send_group(group);
    if (sent && fence_ == 0) {  // its row had been deleted
      commits_.insert(commits_.begin(), group.begin(), group.end());
    } else if (sent) {
      series_.groups.add();
      finish_conflicts(group);
      for (const CommitPtr& commit : group) commit->done.set();
    } else if (sent.error().code == Errc::unreachable) {
      series_.unknown.add();
      fence_ = 0;
      lost_ = true;
      lost = std::move(group);
    } else {
      refuse_group(group, sent.error());
    }
  }
  committing_ = false;
}

Task<Result<AttemptResult>> PostgresEngine::commit(const Transaction& txn, int64_t deadline_ns) {
  const auto commit = std::make_shared<Commit>(loop_);
  commit->watched = txn.watched();
  commit->writes = txn.writes();
  for (auto& [key, value] : commit->writes) {
    if (value) value = with_checksum(key, *value);
    commit->bytes += key.size() + (value ? value->size() : 0);
  }
  commits_.push_back(commit);
  if (!std::exchange(committing_, true)) gate_.spawn(serve_commits());
  const auto waited = co_await commit->done.wait(deadline_ns);
  if (waited) co_return commit->result;
  if (commit->sent) co_return AttemptResult::unknown;
  std::erase(commits_, commit);
  co_return late();
}

Task<Result<AttemptResult>> PostgresEngine::attempt(const TxnFunction& function,
                                                    int64_t deadline_ns) {
  Transaction txn(*this, kReadsMax, deadline_ns);
  const auto commit_it = [&](const Transaction& done) { return commit(done, deadline_ns); };
  co_return co_await attempt_transaction(txn, function, commit_it);
}

Task<Result<void>> PostgresEngine::run(TxnFunction function, int64_t deadline_ns) {
  const auto one = [&] { return attempt(function, deadline_ns); };
  co_return co_await retry_transaction(loop_, rng_, series_, options_.name, deadline_ns, one);
}

Task<Result<void>> PostgresEngine::view(TxnFunction function, int64_t deadline_ns) {
  for (int outdated = 0; outdated < kOutdatedMax; ++outdated) {
    Transaction txn(*this, kNoLimit, deadline_ns);
    auto result = co_await function(txn);
    FF_CHECK(txn.writes().empty());
    if (txn.needs_snapshot()) break;
    if (!txn.outdated()) co_return result;
  }
  co_return co_await view_snapshot(std::move(function), deadline_ns);
}

Task<Result<void>> PostgresEngine::view_snapshot(TxnFunction function, int64_t deadline_ns) {
  FF_CO_TRY(const auto permit, co_await with_deadline(loop_, deadline_ns, "too many scans run",
                                                      snapshots_.acquire(1)));
  if (snapshot_readers_.empty()) {
    snapshot_readers_.push_back(std::make_unique<ServerConnection>(*this, "ff scan"));
  }
  auto connection = std::move(snapshot_readers_.back());
  snapshot_readers_.pop_back();
  Backoff backoff = retry_backoff(rng_);
  for (;;) {
    SnapshotTransaction txn(*connection, loop_, deadline_ns);
    PostgresStatement begin{"", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"};
    auto begun = co_await txn.run(std::move(begin));
    Result<void> result = begun ? Result<void>() : begun.error();
    if (begun) result = co_await function(txn);
    FF_CHECK(txn.writes().empty());
    if (!txn.lost()) {
      PostgresStatement end{"", "COMMIT"};
      const auto ended = co_await txn.run(std::move(end));
      if (ended) snapshot_readers_.push_back(std::move(connection));
      co_return result;
    }
    FF_CO_TRY(co_await wait_before_retry(loop_, backoff, deadline_ns, *txn.lost()));
  }
}

}  // namespace ff::kv
