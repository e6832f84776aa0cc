// memory_engine.cc: snapshots by revision; a commit compares the revisions of the keys that were
// read.
#include "platform/kv/memory_engine.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/kv/record_checksum.h"
#include "platform/kv/retry.h"

namespace ff::kv {

size_t MemoryStore::size() const {
  return static_cast<size_t>(std::ranges::count_if(
      keys_, [](const auto& entry) { return entry.second.back().value.has_value(); }));
}

std::optional<std::string> MemoryStore::read(const std::string& key, uint64_t at) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  const Versions& versions = found->second;
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    if (version->revision <= at) return version->value;
  }
  return std::nullopt;
}

std::vector<Entry> MemoryStore::read_range(const Range& range, uint64_t at) const {
  std::vector<Entry> entries;
  for (auto next = keys_.lower_bound(range.begin);
       next != keys_.end() && next->first < range.end && entries.size() < range.limit; ++next) {
    if (auto value = read(next->first, at)) entries.push_back({next->first, std::move(*value)});
  }
  return entries;
}

uint64_t MemoryStore::changed_at(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? 0 : found->second.back().revision;
}

// Checks the contract of Txn::range(): other engines would miss a change without its guard.
void MemoryStore::check_guards(const Txn::Writes& writes) const {
  for (const auto& [guard, range] : guarded_) {
    if (writes.contains(guard)) continue;
    const auto inside = writes.lower_bound(range.first);
    FF_CHECK(inside == writes.end() || inside->first >= range.second);
  }
}

void MemoryStore::commit(const Txn::Writes& writes, bool soon) {
  if (writes.empty()) return;
  check_guards(writes);
  ++revision_;
  if (!soon) undurable_.clear();
  if (soon && generation_ != 0) undurable_.push_back({.revision = revision_, .before = {}});
  for (const auto& [key, value] : writes) {
    Versions& versions = keys_[key];
    if (!undurable_.empty()) {
      undurable_.back().before.emplace_back(
          key, versions.empty() ? std::nullopt : std::optional(versions.back()));
    }
    versions.push_back(
        {revision_, value ? std::optional(with_checksum(key, *value)) : std::nullopt});
    prune(versions);
  }
}

std::optional<uint64_t> MemoryStore::durable_position(uint64_t generation) const {
  if (generation == generation_) {
    return undurable_.empty() ? revision_ : undurable_.front().revision - 1;
  }
  const auto ended = ended_.find(generation);
  return ended == ended_.end() ? std::nullopt : std::optional(ended->second);
}

void MemoryStore::undo_last() {
  for (auto& [key, version] : undurable_.back().before) {
    if (version) {
      keys_[key] = {std::move(*version)};
    } else {
      keys_.erase(key);
    }
  }
  revision_ = undurable_.back().revision - 1;
  undurable_.pop_back();
}

size_t MemoryStore::power_loss(Rng& rng) {
  FF_CHECK(generation_ != 0 && snapshots_.empty());
  const size_t lost = rng.below(undurable_.size() + 1);
  for (size_t i = 0; i < lost; i++) undo_last();
  undurable_.clear();
  ended_[generation_] = revision_;
  generation_ = rng.next() | 1;
  return lost;
}

// Keeps the newest version, and for each running snapshot the one it sees.
void MemoryStore::prune(Versions& versions) const {
  const uint64_t oldest = snapshots_.empty() ? revision_ : *snapshots_.begin();
  size_t first = versions.size() - 1;
  while (first > 0 && versions[first].revision > oldest) --first;
  versions.erase(versions.begin(), versions.begin() + static_cast<ptrdiff_t>(first));
}

class MemoryEngine::Transaction final : public Txn {
 public:
  Transaction(MemoryEngine& engine, size_t reads_max)
      : Txn(reads_max),
        engine_(engine),
        at_(engine.store_.revision()),
        place_(store().snapshots_.insert(at_)) {}
  ~Transaction() override { store().snapshots_.erase(place_); }

  // Whether no key that was read has changed since.
  bool holds() const {
    return std::ranges::all_of(
        watched_, [&](const std::string& key) { return store().changed_at(key) <= at_; });
  }

 private:
  MemoryStore& store() const { return engine_.store_; }
  Task<Result<std::optional<std::string>>> fetch(std::string key, bool watched) override {
    co_await engine_.delay();
    co_return look(key, watched);
  }
  Task<Result<std::vector<std::optional<std::string>>>> fetch_all(
      std::vector<std::string> keys) override {
    co_await engine_.delay();
    std::vector<std::optional<std::string>> values;
    for (const std::string& key : keys) values.push_back(look(key, true));
    co_return values;
  }
  Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
    co_await engine_.delay();
    co_return look_range(range, guard);
  }
  Task<Result<std::vector<std::vector<Entry>>>> fetch_ranges(
      std::vector<GuardedRange> ranges) override {
    co_await engine_.delay();
    std::vector<std::vector<Entry>> found;
    for (const GuardedRange& one : ranges) found.push_back(look_range(one.range, one.guard));
    co_return found;
  }

  std::optional<std::string> look(const std::string& key, bool watched) {
    if (watched) watched_.insert(key);
    return store().read(key, at_);
  }
  std::vector<Entry> look_range(const Range& range, const std::string& guard) {
    auto entries = store().read_range(range, at_);
    if (guard.empty() || guard == kIncludeDamaged) return entries;
    auto& guarded = store().guarded_.try_emplace(guard, range.begin, range.end).first->second;
    guarded.first = std::min(guarded.first, range.begin);
    guarded.second = std::max(guarded.second, range.end);
    watched_.insert(guard);
    return entries;
  }

  MemoryEngine& engine_;
  const uint64_t at_;
  std::multiset<uint64_t>::iterator place_;
  std::set<std::string> watched_;
};

Task<void> MemoryEngine::delay() {
  if (faults_.delay_max_ns == 0) co_return;
  const auto ns = static_cast<int64_t>(rng_.below(static_cast<uint64_t>(faults_.delay_max_ns) + 1));
  (void)co_await sleep_for(loop_, ns);
}

// Returns whether the commit was acknowledged.
Task<bool> MemoryEngine::commit(const Transaction& txn, bool soon) {
  co_await delay();
  if (!txn.holds() || rng_.uniform01() < faults_.conflict) co_return false;
  const bool answered = rng_.uniform01() >= faults_.lost_answer;
  if (answered || rng_.uniform01() < 0.5) store_.commit(txn.writes(), soon);
  co_await delay();
  co_return answered;
}

// Returns whether the function's writes are committed.
Task<Result<bool>> MemoryEngine::attempt(const TxnFunction& function, bool soon) {
  Transaction txn(*this, kReadsMax);
  FF_CO_TRY(co_await function(txn));
  FF_CO_TRY(txn.check());
  if (const CancellationToken* cancel = co_await current_cancellation();
      cancel && cancel->requested()) {
    co_return cancel->reason();
  }
  const bool committed = co_await commit(txn, soon).shielded();
  co_return committed;
}

Task<Result<void>> MemoryEngine::run(TxnFunction function, int64_t deadline_ns) {
  return run(std::move(function), deadline_ns, false);
}

Task<Result<void>> MemoryEngine::run_async_commit(TxnFunction function, int64_t deadline_ns) {
  return run(std::move(function), deadline_ns, true);
}

Task<Result<void>> MemoryEngine::sync(int64_t) {
  co_await delay();
  store_.undurable_.clear();
  co_return Result<void>();
}

Task<Result<void>> MemoryEngine::run(TxnFunction function, int64_t deadline_ns, bool soon) {
  Backoff backoff = retry_backoff(rng_);
  for (int attempts = 1;; ++attempts) {
    FF_CO_TRY(const bool done, co_await attempt(function, soon));
    if (done) co_return Result<void>();
    Error late =
        fail(Errc::deadline, "a transaction conflicted with others in {} attempts", attempts);
    FF_CO_TRY(co_await wait_before_retry(loop_, backoff, deadline_ns, std::move(late)));
  }
}

Task<Result<void>> MemoryEngine::view(TxnFunction function, int64_t) {
  Transaction txn(*this, kNoLimit);
  FF_CO_TRY(co_await function(txn));
  FF_CHECK(txn.writes().empty());
  co_return Result<void>();
}

}  // namespace ff::kv
