// Transactions over an ordered map from byte strings to byte strings: where the cluster manager and
// the metadata service keep their state (storage.md, "Metadata"). Keys sort as bytes.
//
// A transaction is a function that reads through a Txn and leaves its writes there. What has
// committed looks as if the functions had run one after the other (serializable), and no function
// that begins after run() of another has returned sees less than that one's writes.
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
#include "platform/kv/mark.h"

namespace ff::kv {

// What one transaction may do at most, with every engine: larger work is several of them.
constexpr size_t kReadsMax = 100;   // get() and range() calls; view() knows no limit
constexpr size_t kWritesMax = 100;  // keys put or erased
constexpr size_t kBytesMax = kMiB;  // keys and values written

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

struct Entry {
  std::string key;
  std::string value;
  bool operator==(const Entry&) const = default;
};

// Keys from `begin` on and before `end`.
struct Range {
  std::string begin;
  std::string end;
  size_t limit = 0;  // entries, at least 1
};

// The end of the range of all keys that begin with `prefix`, which is not empty and not all 0xff.
std::string end_of_prefix(std::string prefix);

// The reads and writes of one run of a function. Reads see its own writes.
//
// Errors of reads: Errc::failed past the limits above, else the engine's. Whoever meets one returns
// it. Writes past the limits fail the transaction with Errc::failed at its end.
class Txn {
 public:
  virtual ~Txn() = default;
  explicit Txn(size_t reads_max) : reads_max_(reads_max) {}
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  // The value, or nothing. No transaction that changes it comes between this one's begin and end.
  Task<Result<std::optional<std::string>>> get(std::string key);
  // The same, but it may have changed by the end: for what never changes back, and for hints.
  Task<Result<std::optional<std::string>>> snapshot_get(std::string key);
  // The first `limit` entries of the range. `guard` is a key that every transaction puts which
  // changes which keys the range holds, or their values: engines that cannot watch ranges watch it.
  // It may be empty in a view(), which watches nothing.
  Task<Result<std::vector<Entry>>> range(Range range, std::string guard);

  void put(std::string key, std::string value);
  void erase(std::string key);

  // What is left of it: nothing stands for erased.
  using Writes = std::map<std::string, std::optional<std::string>>;
  const Writes& writes() const { return writes_; }
  // Whether the writes are within the limits.
  Result<void> check() const;

 private:
  virtual Task<Result<std::optional<std::string>>> fetch(std::string key, bool watched) = 0;
  virtual Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) = 0;
  Task<Result<std::optional<std::string>>> read(std::string key, bool watched);
  Result<void> count_read();

  const size_t reads_max_;
  Writes writes_;
  size_t written_ = 0;  // bytes, also of what was put again
  size_t reads_ = 0;
};

// May run more than once, even after an earlier run has taken effect (the answer was lost): what
// must happen once reads first what it writes itself. It waits for nothing but its transaction, may
// run in another thread while its caller waits, and touches nothing else that others use. An error
// leaves no writes and is handed on.
using Function = std::function<Task<Result<void>>(Txn&)>;

// One per loop, which owns it. Functions of all engines on one store see each other's writes.
class Engine {
 public:
  virtual ~Engine() = default;
  // Runs `function` and commits its writes; again after a conflict, until `deadline_ns` (steady;
  // INT64_MAX: no end). When it returns well they are durable. Errors: the function's, which was
  // then right about what it read; Errc::deadline; Errc::unreachable or failed when the store is at
  // fault: the writes may or may not have been made. Not cancelled once it has begun to commit.
  virtual Task<Result<void>> run(Function function, int64_t deadline_ns) = 0;
  // The same, but it may return before the writes are durable. They are within a second, or once
  // sync() has returned; what a loss of power takes is always the last ones, in order.
  virtual Task<Result<void>> run_soon(Function function, int64_t deadline_ns) {
    return run(std::move(function), deadline_ns);
  }
  // Everything that has returned before is durable. Errors: it may not be.
  virtual Task<Result<void>> sync(int64_t deadline_ns);
  // No less than that of any run_soon() that has returned.
  virtual Mark mark() const { return {}; }
  // Up to which position that generation's commits are durable now. Nothing: no such generation is
  // known, and whatever it committed may be lost.
  virtual std::optional<uint64_t> durable(uint64_t) const { return std::nullopt; }
  // The same for a function that writes nothing: it reads one snapshot, which holds the writes of
  // every run() that returned before this was called, and as much of it as it likes.
  virtual Task<Result<void>> view(Function function, int64_t deadline_ns) = 0;
  // The same for one that reads a few keys, which may run at once in the loop's own thread.
  virtual Task<Result<void>> look(Function function, int64_t deadline_ns) {
    return view(std::move(function), deadline_ns);
  }
};

}  // namespace ff::kv
