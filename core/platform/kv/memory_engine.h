// The store of a simulated cluster: several engines on one MemoryStore, optimistic like etcd's,
// with delays, conflicts and lost answers drawn from a seed. Everything belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/kv/engine.h"

namespace ff::kv {

// All versions that a running transaction may still read.
class MemoryStore {
 public:
  uint64_t revision() const { return revision_; }
  size_t size() const;  // keys that have a value now

  // From now on what run_soon() has committed is durable only after the next run() or sync() of any
  // engine, and until then lose_power() may take it.
  void commit_soon(Rng& rng) { generation_ = rng.next() | 1; }
  // How many commits are lost: some of the last ones, in order. No engine runs.
  size_t lose_power(Rng& rng);

 private:
  friend class MemoryEngine;
  struct Version {
    uint64_t revision = 0;
    std::optional<std::string> value;  // nothing: erased
  };
  using Versions = std::vector<Version>;

  std::optional<std::string> read(const std::string& key, uint64_t at) const;
  std::vector<Entry> read_range(const Range& range, uint64_t at) const;
  uint64_t changed_at(const std::string& key) const;  // 0: never
  void commit(const Txn::Writes& writes, bool soon);
  std::optional<uint64_t> durable(uint64_t generation) const;
  void undo_last();
  void check_guards(const Txn::Writes& writes) const;
  void prune(Versions& versions) const;

  std::map<std::string, Versions> keys_;
  uint64_t revision_ = 0;
  std::multiset<uint64_t> snapshots_;  // of running transactions
  // What was read as a range, by its guard: changes in there must put the guard.
  std::map<std::string, std::pair<std::string, std::string>> guarded_;

  // A commit that is not durable, and what its keys were before it.
  struct Undo {
    uint64_t revision = 0;
    std::vector<std::pair<std::string, std::optional<Version>>> before;
  };
  uint64_t generation_ = 0;  // kv/mark.h; 0: every commit is durable
  std::deque<Undo> undurable_;
  std::map<uint64_t, uint64_t> ended_;  // where earlier generations did
};

struct MemoryFaults {
  int64_t delay_max_ns = 0;  // of each read and each commit
  double conflict = 0;       // probability that a commit meets one that is not there
  double lost_answer = 0;    // that a commit is not answered; half of those have taken effect
};

class MemoryEngine final : public Engine {
 public:
  MemoryEngine(MemoryStore& store, Loop& loop, Rng& rng, MemoryFaults faults = {})
      : store_(store), loop_(loop), rng_(rng), faults_(faults) {}

  Task<Result<void>> run(Function function, int64_t deadline_ns) override;
  Task<Result<void>> run_soon(Function function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  Mark mark() const override { return {store_.generation_, store_.revision()}; }
  std::optional<uint64_t> durable(uint64_t generation) const override {
    return store_.durable(generation);
  }
  Task<Result<void>> view(Function function, int64_t deadline_ns) override;

 private:
  class Transaction;
  Task<Result<void>> run(Function function, int64_t deadline_ns, bool soon);
  Task<Result<bool>> attempt(const Function& function, bool soon);
  Task<bool> commit(const Transaction& txn, bool soon);
  Task<void> delay();

  MemoryStore& store_;
  Loop& loop_;
  Rng& rng_;
  const MemoryFaults faults_;
};

}  // namespace ff::kv
