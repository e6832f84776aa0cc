// The store of a simulated cluster: several engines on one MemoryStore, with optimistic
// transactions as on etcd, and with random delays, conflicts and lost answers. Single-threaded.
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

// A multi-version map: keeps all versions that running transactions may read.
class MemoryStore {
 public:
  uint64_t revision() const { return revision_; }
  size_t size() const;  // number of keys with a value

  // From now on commits of run_async_commit() become durable with the next run() or sync() of any
  // engine; until then power_loss() may lose them.
  void enable_async_commit(Rng& rng) { generation_ = rng.next() | 1; }
  // Loses a random number of the latest commits that are not durable, and returns that number. No
  // engine may be running.
  size_t power_loss(Rng& rng);

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
  std::optional<uint64_t> durable_position(uint64_t generation) const;
  void undo_last();
  void check_guards(const Txn::Writes& writes) const;
  void prune(Versions& versions) const;

  std::map<std::string, Versions> keys_;
  uint64_t revision_ = 0;
  std::multiset<uint64_t> snapshots_;  // of running transactions
  // Ranges that were read, by guard: changes inside must put the guard.
  std::map<std::string, std::pair<std::string, std::string>> guarded_;

  // Undo record of a commit that is not durable.
  struct Undo {
    uint64_t revision = 0;
    std::vector<std::pair<std::string, std::optional<Version>>> before;
  };
  uint64_t generation_ = 0;  // kv/commit_position.h; 0: every commit is durable
  std::deque<Undo> undurable_;
  std::map<uint64_t, uint64_t> ended_;  // end positions of earlier generations
};

struct MemoryFaults {
  int64_t delay_max_ns = 0;  // maximum delay of each read and commit
  double conflict = 0;       // probability of a spurious conflict at commit
  double lost_answer = 0;    // probability of a lost answer; half of those commits take effect
};

class MemoryEngine final : public Engine {
 public:
  MemoryEngine(MemoryStore& store, Loop& loop, Rng& rng, MemoryFaults faults = {})
      : store_(store), loop_(loop), rng_(rng), faults_(faults) {}

  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> run_async_commit(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  CommitPosition last_commit() const override { return {store_.generation_, store_.revision()}; }
  std::optional<uint64_t> durable_position(uint64_t generation) const override {
    return store_.durable_position(generation);
  }
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override;

 private:
  class Transaction;
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns, bool soon);
  Task<Result<bool>> attempt(const TxnFunction& function, bool soon);
  Task<bool> commit(const Transaction& txn, bool soon);
  Task<void> delay();

  MemoryStore& store_;
  Loop& loop_;
  Rng& rng_;
  const MemoryFaults faults_;
};

}  // namespace ff::kv
