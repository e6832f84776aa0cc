// The store of a simulated cluster: several engines on one MemoryStore, optimistic like etcd's,
// with delays, conflicts and lost answers drawn from a seed. Everything belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/rng.h"
#include "kv/engine.h"

namespace ff::kv {

// All versions that a running transaction may still read.
class MemoryStore {
 public:
  uint64_t revision() const { return revision_; }
  size_t size() const;  // keys that have a value now

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
  void commit(const Txn::Writes& writes);
  void check_guards(const Txn::Writes& writes) const;
  void prune(Versions& versions) const;

  std::map<std::string, Versions> keys_;
  uint64_t revision_ = 0;
  std::multiset<uint64_t> snapshots_;  // of running transactions
  // What was read as a range, by its guard: changes in there must put the guard.
  std::map<std::string, std::pair<std::string, std::string>> guarded_;
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
  Task<Result<void>> view(Function function, int64_t deadline_ns) override;

 private:
  class Transaction;
  Task<Result<bool>> attempt(const Function& function);
  Task<bool> commit(const Transaction& txn);
  Task<void> delay();

  MemoryStore& store_;
  Loop& loop_;
  Rng& rng_;
  const MemoryFaults faults_;
};

}  // namespace ff::kv
