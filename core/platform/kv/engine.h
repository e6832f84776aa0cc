// Transactions over an ordered map from byte strings to byte strings. The cluster manager and the
// metadata service keep their state in it. Keys are ordered bytewise.
//
// A transaction is a function that reads from and writes to a Txn. Transactions are strictly
// serializable: the result is as if they ran one after the other, and a transaction that begins
// after run() of another has returned sees its writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/kv/commit_position.h"

namespace ff::kv {

// Limits of one transaction with every engine; split larger work into several transactions.
constexpr size_t kReadsMax = 100;   // get() and range() calls; view() has no limit
constexpr size_t kWritesMax = 100;  // keys put or erased
constexpr size_t kBytesMax = kMiB;  // bytes of keys and values written

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

struct Entry {
  std::string key;
  std::string value;
  bool operator==(const Entry&) const = default;
};

// The keys in [begin, end).
struct Range {
  std::string begin;
  std::string end;
  size_t limit = 0;  // maximum number of entries, at least 1
};

// A range that a transaction reads, and the guard of Txn::range().
struct GuardedRange {
  Range range;
  std::string guard;
};

// The end of the range of all keys with this prefix; it must not be empty or all 0xff.
std::string end_of_prefix(std::string prefix);

// The reads and writes of one run of a transaction function. Reads see its own writes.
//
// Errors of reads: Errc::failed over the limits above, else the engine's. The function must return
// them. Writes over the limits fail the commit with Errc::failed.
class Txn {
 public:
  virtual ~Txn() = default;
  explicit Txn(size_t reads_max) : reads_max_(reads_max) {}
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  // The value, or empty. A conflicting change before the commit makes the transaction run again.
  Task<Result<std::optional<std::string>>> get(std::string key);
  // The same for several keys, whose values come in their order: one round trip where get() of each
  // would take one. Counts as a read of each key.
  Task<Result<std::vector<std::optional<std::string>>>> get_all(std::vector<std::string> keys);
  // get() without conflict detection: for hints, and for values that never change back.
  Task<Result<std::optional<std::string>>> snapshot_get(std::string key);
  // The first `limit` entries of the range. `guard`: a key that every transaction must put if it
  // changes keys or values of the range; engines without range conflict detection detect conflicts
  // on it. May be empty in a view(), which detects no conflicts.
  Task<Result<std::vector<Entry>>> range(Range range, std::string guard);
  // Reads keys, or ranges, in one round trip, so that later get() calls of these keys and
  // range() calls of these ranges with no larger limit need none. Counts as a read of each, and
  // conflicts on all are detected, whether they are used or not. No effect if reads take none.
  Task<Result<void>> prefetch(std::vector<std::string> keys);
  Task<Result<void>> prefetch_ranges(std::vector<GuardedRange> ranges);
  // Whether each read waits for a store on another machine.
  virtual bool reads_take_round_trips() const { return true; }

  void put(std::string key, std::string value);
  void erase(std::string key);

  // The new values by key; empty: erased.
  using Writes = std::map<std::string, std::optional<std::string>>;
  const Writes& writes() const { return writes_; }
  // Errc::failed if the writes exceed the limits.
  Result<void> check() const;

 private:
  using Values = std::vector<std::optional<std::string>>;
  virtual Task<Result<std::optional<std::string>>> fetch(std::string key, bool watched) = 0;
  // Conflicts on all keys are detected. Calls fetch() for each, unless the engine knows better.
  virtual Task<Result<Values>> fetch_all(std::vector<std::string> keys);
  virtual Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) = 0;
  // Calls fetch_range() for each, unless the engine knows better.
  virtual Task<Result<std::vector<std::vector<Entry>>>> fetch_ranges(
      std::vector<GuardedRange> ranges);
  Task<Result<std::optional<std::string>>> read(std::string key, bool watched);
  Task<Result<std::vector<Entry>>> read_range(Range range, std::string guard);
  Result<void> count_read();

  struct PrefetchedRange {
    Range range;
    std::vector<Entry> entries;  // as stored; fewer than the limit: all of the range
  };

  const size_t reads_max_;
  Writes writes_;
  std::map<std::string, std::optional<std::string>> prefetched_;
  std::map<std::string, PrefetchedRange> prefetched_ranges_;  // by begin
  size_t written_ = 0;                                        // bytes, overwritten ones included
  size_t reads_ = 0;
};

// The body of a transaction. It may run several times, even after an earlier run was committed (the
// answer was lost): a function whose effect must happen once has to read a key that it writes
// itself. It may await only its Txn, may run in another thread while the caller waits, and must not
// access other shared state. If it returns an error, nothing is written and the caller gets the
// error.
using TxnFunction = std::function<Task<Result<void>>(Txn&)>;

// A store, as one loop uses it. The loop owns it. Engines of several loops may share one store.
class Engine {
 public:
  virtual ~Engine() = default;
  // Runs `function` and commits its writes; retries after conflicts until `deadline_ns` (steady
  // clock; INT64_MAX: no deadline). On success the writes are durable. Errors: the function's,
  // based on a consistent snapshot; Errc::deadline; Errc::unreachable or Errc::failed if the store
  // fails: the writes may or may not be committed. Cancellation has no effect once the commit has
  // begun.
  virtual Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) = 0;
  // The same with asynchronous commit (as PostgreSQL's synchronous_commit = off): it may return
  // before the writes are durable. They are durable within a second, or after sync(). A power loss
  // loses only the latest commits, in order.
  virtual Task<Result<void>> run_async_commit(TxnFunction function, int64_t deadline_ns) {
    return run(std::move(function), deadline_ns);
  }
  // Makes all commits that have returned durable. On errors they may not be.
  virtual Task<Result<void>> sync(int64_t deadline_ns);
  // The latest commit; not before any run_async_commit() that has returned.
  virtual CommitPosition last_commit() const { return {}; }
  // The position up to which the commits of a generation are durable. Empty: the generation is
  // unknown; its commits may be lost.
  virtual std::optional<uint64_t> durable_position(uint64_t) const { return std::nullopt; }
  // Runs a read-only function on one snapshot, which contains the writes of every run() that had
  // returned before this call. No limit on reads.
  virtual Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) = 0;
  // The same for functions that read a few keys only; may run in the loop's thread.
  virtual Task<Result<void>> view_inline(TxnFunction function, int64_t deadline_ns) {
    return view(std::move(function), deadline_ns);
  }
};

}  // namespace ff::kv
