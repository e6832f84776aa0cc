// etcd_engine.cc: reads at one revision, commits with compares, and the fence against late commits.
#include "platform/kv/etcd_engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/kv/record_checksum.h"

namespace ff::kv {

namespace {

// The etcd lease of the fence. The fence moves to a new lease at half of the time, so that a
// running commit never sees the lease expire.
constexpr int64_t kLeaseSeconds = 600;
constexpr int64_t kLeaseRenewNs = kLeaseSeconds / 2 * kSecond;
// etcd executes at most 128 operations at once (--max-txn-ops).
constexpr size_t kKeysAtOnce = 100;

// Adds the checksum to a value that an older ff stored without one.
std::string upgrade_value(std::string_view key, std::string stored) {
  return lacks_checksum(stored) ? with_checksum(key, stored) : stored;
}

}  // namespace

class EtcdEngine::Transaction final : public Txn {
 public:
  Transaction(EtcdEngine& engine, size_t reads_max, int64_t deadline_ns)
      : Txn(reads_max), engine_(engine), deadline_ns_(deadline_ns) {}

  bool outdated() const { return outdated_; }
  std::vector<EtcdGateway::Compare> compares() const {
    std::vector<EtcdGateway::Compare> compares;
    for (const auto& [key, revision] : watched_) compares.push_back({key, revision});
    return compares;
  }

 private:
  Task<Result<std::optional<std::string>>> fetch(std::string key, bool watched) override {
    EtcdGateway::Reads reads;
    reads.ranges.push_back({key, {}, 1});
    FF_CO_TRY(auto found, co_await read(std::move(reads)));
    std::optional<std::string> value;
    int64_t revision = 0;
    for (EtcdGateway::Value& one : found[0]) {
      value = upgrade_value(key, std::move(one.value));
      revision = one.revision;
    }
    if (watched) watched_.emplace(std::move(key), revision);
    co_return value;
  }

  Task<Result<std::vector<std::optional<std::string>>>> fetch_all(
      std::vector<std::string> keys) override {
    std::vector<std::optional<std::string>> values(keys.size());
    for (size_t first = 0; first < keys.size(); first += kKeysAtOnce) {
      const size_t end = std::min(first + kKeysAtOnce, keys.size());
      EtcdGateway::Reads reads;
      for (size_t i = first; i < end; i++) reads.ranges.push_back({keys[i], {}, 1});
      FF_CO_TRY(auto found, co_await read(std::move(reads)));
      for (size_t i = first; i < end; i++) {
        int64_t revision = 0;
        for (EtcdGateway::Value& one : found[i - first]) {
          values[i] = upgrade_value(keys[i], std::move(one.value));
          revision = one.revision;
        }
        watched_.emplace(keys[i], revision);
      }
    }
    co_return values;
  }

  // Reads the guard together with the range, for its revision.
  Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
    if (range.begin >= range.end) co_return std::vector<Entry>();
    if (guard == kIncludeDamaged) guard.clear();
    EtcdGateway::Reads reads;
    reads.ranges.push_back(std::move(range));
    if (!guard.empty()) reads.ranges.push_back({guard, {}, 1});
    FF_CO_TRY(auto found, co_await read(std::move(reads)));
    if (!guard.empty()) watch(std::move(guard), found[1]);
    co_return stored_entries(std::move(found[0]));
  }

  Task<Result<std::vector<std::vector<Entry>>>> fetch_ranges(
      std::vector<GuardedRange> ranges) override {
    constexpr size_t kRangesAtOnce = kKeysAtOnce / 2;
    std::vector<std::vector<Entry>> entries;
    for (size_t first = 0; first < ranges.size(); first += kRangesAtOnce) {
      const size_t end = std::min(first + kRangesAtOnce, ranges.size());
      EtcdGateway::Reads reads;
      for (size_t i = first; i < end; i++) {
        reads.ranges.push_back(std::move(ranges[i].range));
        if (!ranges[i].guard.empty()) reads.ranges.push_back({ranges[i].guard, {}, 1});
      }
      FF_CO_TRY(auto found, co_await read(std::move(reads)));
      for (size_t i = first, at = 0; i < end; i++) {
        entries.push_back(stored_entries(std::move(found[at++])));
        if (!ranges[i].guard.empty()) watch(std::move(ranges[i].guard), found[at++]);
      }
    }
    co_return entries;
  }

  void watch(std::string guard, const std::vector<EtcdGateway::Value>& found) {
    watched_.emplace(std::move(guard), found.empty() ? 0 : found[0].revision);
  }
  static std::vector<Entry> stored_entries(std::vector<EtcdGateway::Value> values) {
    std::vector<Entry> entries;
    for (EtcdGateway::Value& value : values) {
      std::string stored = upgrade_value(value.key, std::move(value.value));
      entries.push_back({std::move(value.key), std::move(stored)});
    }
    return entries;
  }

  // Reads at the transaction's revision, from any member that has reached it.
  Task<Result<std::vector<std::vector<EtcdGateway::Value>>>> read(EtcdGateway::Reads reads) {
    reads.revision = revision_;
    reads.local = revision_ != 0;
    auto snapshot = co_await engine_.read(std::move(reads), deadline_ns_);
    outdated_ = outdated_ || (!snapshot && snapshot.error().code == Errc::not_found);
    if (!snapshot) co_return std::move(snapshot).error();
    revision_ = snapshot->revision;
    co_return std::move(snapshot->found);
  }

  EtcdEngine& engine_;
  const int64_t deadline_ns_;
  int64_t revision_ = 0;                    // of all reads, from the first one on
  bool outdated_ = false;                   // that revision has been compacted away
  std::map<std::string, int64_t> watched_;  // keys and the revisions of their last change
};

// Retries until a member answers.
Task<Result<EtcdGateway::Snapshot>> EtcdEngine::read(EtcdGateway::Reads reads,
                                                     int64_t deadline_ns) {
  Backoff backoff = retry_backoff(rng_);
  std::optional<Error> cause;  // why the attempt before failed
  for (;;) {
    auto snapshot = co_await etcd_.read(loop_, reads, deadline_ns);
    const Errc code = snapshot ? Errc::failed : snapshot.error().code;
    const bool behind = code == Errc::busy;
    if (code == Errc::deadline && cause) co_return *cause;  // woken too late
    if (code != Errc::unreachable && !behind) co_return snapshot;
    reads.local = false;
    if (behind) continue;
    cause = snapshot.error();
    FF_CO_TRY(co_await wait_before_retry(loop_, backoff, deadline_ns, *cause));
  }
}

// Returns the revision of a valid fence. Puts the fence if there is none, if commits with the last
// one must fail, or to attach it to a new lease.
Task<Result<int64_t>> EtcdEngine::fence(int64_t deadline_ns) {
  const auto good = [this] {
    return fence_ > revoked_fence_ && loop_.now_ns() - lease_ns_ < kLeaseRenewNs;
  };
  if (good()) co_return fence_;
  FF_CO_TRY(const auto hold, co_await fencing_.acquire(1));
  Backoff backoff = retry_backoff(rng_);
  std::optional<Error> cause;  // why the attempt before failed
  for (;;) {
    if (good()) co_return fence_;
    auto put = co_await put_fence(deadline_ns);
    if (put) {
      fence_ = std::max(fence_, *put);
      continue;
    }
    const Errc code = put.error().code;
    if (code == Errc::deadline && cause) co_return *cause;  // woken too late
    if (code == Errc::not_found) lease_.clear();
    if (code != Errc::not_found && code != Errc::unreachable) co_return put;
    cause = put.error();
    FF_CO_TRY(co_await wait_before_retry(loop_, backoff, deadline_ns, *cause));
  }
}

Task<Result<int64_t>> EtcdEngine::put_fence(int64_t deadline_ns) {
  const int64_t now_ns = loop_.now_ns();
  if (lease_.empty() || now_ns - lease_ns_ >= kLeaseRenewNs) {
    FF_CO_TRY(lease_, co_await etcd_.grant(loop_, kLeaseSeconds, deadline_ns));
    lease_ns_ = now_ns;
  }
  co_return co_await etcd_.put_leased(loop_, fence_key_, lease_, deadline_ns);
}

// A commit in flight. If it ends without an answer, also by destruction of its task, its fence is
// revoked.
struct EtcdEngine::Pending {
  EtcdEngine& engine;
  const int64_t fence;
  bool answered = false;
  ~Pending() {
    if (!answered) engine.revoked_fence_ = std::max(engine.revoked_fence_, fence);
  }
};

Task<Result<AttemptResult>> EtcdEngine::commit(const Transaction& txn, int64_t deadline_ns) {
  FF_CO_TRY(const int64_t fence, co_await fence(deadline_ns));
  EtcdGateway::Commit commit;
  commit.fence = {fence_key_, fence};
  commit.compares = txn.compares();
  Txn::Writes writes = txn.writes();
  for (auto& [key, value] : writes) {
    if (value) value = with_checksum(key, *value);
  }
  commit.writes = &writes;
  Pending pending{*this, fence};
  auto outcome = co_await etcd_.commit(loop_, std::move(commit), deadline_ns);
  if (!outcome) {
    const Errc code = outcome.error().code;
    if (code == Errc::unreachable || code == Errc::deadline) co_return AttemptResult::unknown;
  }
  pending.answered = true;
  if (!outcome) co_return std::move(outcome).error();
  if (outcome->committed) co_return AttemptResult::committed;
  if (outcome->fence < fence && fence_ == fence) {  // it went with its lease
    fence_ = 0;
    lease_.clear();
  }
  fence_ = std::max(fence_, outcome->fence);
  co_return AttemptResult::conflict;
}

Task<Result<AttemptResult>> EtcdEngine::attempt(const TxnFunction& function, int64_t deadline_ns) {
  // After a lost commit: revokes the fence, so that it has either happened or never will.
  if (fence_ != 0 && fence_ <= revoked_fence_) FF_CO_TRY(co_await fence(deadline_ns));
  Transaction txn(*this, kReadsMax, deadline_ns);
  const auto commit_it = [&](const Transaction& done) { return commit(done, deadline_ns); };
  co_return co_await attempt_transaction(txn, function, commit_it);
}

Task<Result<void>> EtcdEngine::run(TxnFunction function, int64_t deadline_ns) {
  const auto one = [&] { return attempt(function, deadline_ns); };
  co_return co_await retry_transaction(loop_, rng_, series_, "etcd", deadline_ns, one);
}

Task<Result<void>> EtcdEngine::view(TxnFunction function, int64_t deadline_ns) {
  for (;;) {
    Transaction txn(*this, kNoLimit, deadline_ns);
    auto result = co_await function(txn);
    FF_CHECK(txn.writes().empty());
    if (!txn.outdated()) co_return result;
  }
}

}  // namespace ff::kv
