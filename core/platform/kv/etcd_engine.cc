// etcd_engine.cc: one revision to read, compares to commit, a fence against late commits.
#include "platform/kv/etcd_engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/kv/retry.h"
#include "platform/kv/seal.h"

namespace ff::kv {

namespace {

// The fence's lease. The fence moves to a new one when half of the time is over, so that a running
// commit never meets its end.
constexpr int64_t kLeaseSeconds = 600;
constexpr int64_t kLeaseUseNs = kLeaseSeconds / 2 * kSecond;

// One that an older ff has put has no seal yet.
std::string with_seal(std::string_view key, std::string stored) {
  return is_before_seals(stored) ? sealed(key, stored) : stored;
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
    auto reading = read(std::move(reads));
    FF_CO_TRY(auto found, co_await std::move(reading));
    std::optional<std::string> value;
    int64_t revision = 0;
    for (EtcdGateway::Value& one : found[0]) {
      value = with_seal(key, std::move(one.value));
      revision = one.revision;
    }
    if (watched) watched_.emplace(std::move(key), revision);
    co_return value;
  }

  // The guard is read with the range, for its revision.
  Task<Result<std::vector<Entry>>> fetch_range(Range range, std::string guard) override {
    if (range.begin >= range.end) co_return std::vector<Entry>();
    if (guard == kWithDamaged) guard.clear();
    EtcdGateway::Reads reads;
    reads.ranges.push_back(std::move(range));
    if (!guard.empty()) reads.ranges.push_back({guard, {}, 1});
    auto reading = read(std::move(reads));
    FF_CO_TRY(auto found, co_await std::move(reading));
    if (!guard.empty()) {
      watched_.emplace(std::move(guard), found[1].empty() ? 0 : found[1][0].revision);
    }
    std::vector<Entry> entries;
    for (EtcdGateway::Value& value : found[0]) {
      std::string stored = with_seal(value.key, std::move(value.value));
      entries.push_back({std::move(value.key), std::move(stored)});
    }
    co_return entries;
  }

  // At the transaction's revision, which any member can tell that has come to it.
  Task<Result<std::vector<std::vector<EtcdGateway::Value>>>> read(EtcdGateway::Reads reads) {
    reads.revision = revision_;
    reads.local = revision_ != 0;
    auto reading = engine_.read(std::move(reads), deadline_ns_);
    auto snapshot = co_await std::move(reading);
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

// From whichever member answers.
Task<Result<EtcdGateway::Snapshot>> EtcdEngine::read(EtcdGateway::Reads reads,
                                                     int64_t deadline_ns) {
  Backoff backoff = retry_backoff(rng_);
  std::optional<Error> cause;  // why the attempt before failed
  for (;;) {
    auto reading = etcd_.read(loop_, reads, deadline_ns);
    auto snapshot = co_await std::move(reading);
    const Errc code = snapshot ? Errc::failed : snapshot.error().code;
    const bool behind = code == Errc::busy;
    if (code == Errc::deadline && cause) co_return *cause;  // woken too late
    if (code != Errc::unreachable && !behind) co_return snapshot;
    reads.local = false;
    if (behind) continue;
    cause = snapshot.error();
    auto pausing = pause_before_retry(loop_, backoff, deadline_ns, *cause);
    FF_CO_TRY(co_await std::move(pausing));
  }
}

// Its revision; puts it when there is none yet, when commits with the last one must die, and to
// move it to a new lease.
Task<Result<int64_t>> EtcdEngine::fence(int64_t deadline_ns) {
  const auto good = [this] {
    return fence_ > dead_fence_ && loop_.now_ns() - lease_ns_ < kLeaseUseNs;
  };
  if (good()) co_return fence_;
  auto taking = fencing_.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  Backoff backoff = retry_backoff(rng_);
  std::optional<Error> cause;  // why the attempt before failed
  for (;;) {
    if (good()) co_return fence_;
    auto putting = put_fence(deadline_ns);
    auto put = co_await std::move(putting);
    if (put) {
      fence_ = std::max(fence_, *put);
      continue;
    }
    const Errc code = put.error().code;
    if (code == Errc::deadline && cause) co_return *cause;  // woken too late
    if (code == Errc::not_found) lease_.clear();
    if (code != Errc::not_found && code != Errc::unreachable) co_return put;
    cause = put.error();
    auto pausing = pause_before_retry(loop_, backoff, deadline_ns, *cause);
    FF_CO_TRY(co_await std::move(pausing));
  }
}

Task<Result<int64_t>> EtcdEngine::put_fence(int64_t deadline_ns) {
  const int64_t now_ns = loop_.now_ns();
  if (lease_.empty() || now_ns - lease_ns_ >= kLeaseUseNs) {
    auto granting = etcd_.grant(loop_, kLeaseSeconds, deadline_ns);
    FF_CO_TRY(lease_, co_await std::move(granting));
    lease_ns_ = now_ns;
  }
  auto putting = etcd_.put_leased(loop_, fence_key_, lease_, deadline_ns);
  co_return co_await std::move(putting);
}

// A commit under way: when it goes without an answer, also because its task is destroyed, nothing
// may be committed with its fence any more.
struct EtcdEngine::Pending {
  EtcdEngine& engine;
  const int64_t fence;
  bool answered = false;
  ~Pending() {
    if (!answered) engine.dead_fence_ = std::max(engine.dead_fence_, fence);
  }
};

Task<Result<EtcdEngine::End>> EtcdEngine::commit(const Transaction& txn, int64_t deadline_ns) {
  auto fencing = fence(deadline_ns);
  FF_CO_TRY(const int64_t fence, co_await std::move(fencing));
  EtcdGateway::Commit commit;
  commit.fence = {fence_key_, fence};
  commit.compares = txn.compares();
  Txn::Writes writes = txn.writes();
  for (auto& [key, value] : writes) {
    if (value) value = sealed(key, *value);
  }
  commit.writes = &writes;
  Pending pending{*this, fence};
  auto committing = etcd_.commit(loop_, std::move(commit), deadline_ns);
  auto outcome = co_await std::move(committing);
  if (!outcome) {
    const Errc code = outcome.error().code;
    if (code == Errc::unreachable || code == Errc::deadline) co_return End::unknown;
  }
  pending.answered = true;
  if (!outcome) co_return std::move(outcome).error();
  if (outcome->committed) co_return End::committed;
  if (outcome->fence < fence && fence_ == fence) {  // it went with its lease
    fence_ = 0;
    lease_.clear();
  }
  fence_ = std::max(fence_, outcome->fence);
  co_return End::conflict;
}

Task<Result<EtcdEngine::End>> EtcdEngine::attempt(const Function& function, int64_t deadline_ns) {
  Transaction txn(*this, kReadsMax, deadline_ns);
  auto running = function(txn);
  auto result = co_await std::move(running);
  if (txn.outdated()) co_return End::outdated;
  FF_CO_TRY(std::move(result));
  FF_CO_TRY(txn.check());
  if (txn.writes().empty()) co_return End::committed;
  if (const Cancel* cancel = co_await current_cancel(); cancel && cancel->requested()) {
    co_return cancel->reason();
  }
  auto committing = commit(txn, deadline_ns);
  co_return co_await std::move(committing).shielded();
}

// Until one attempt is the last. `unknown` says whether one may have been committed all the same.
Task<Result<void>> EtcdEngine::run_attempts(Function function, int64_t deadline_ns, bool& unknown) {
  Backoff backoff = retry_backoff(rng_);
  for (int attempts = 1;; ++attempts) {
    auto trying = attempt(function, deadline_ns);
    FF_CO_TRY(const End end, co_await std::move(trying));
    if (end == End::committed) co_return Result<void>();
    if (end == End::unknown) unknown = true;
    Error late =
        fail(Errc::deadline, "{} attempts of a transaction met others that came first", attempts);
    auto pausing = pause_before_retry(loop_, backoff, deadline_ns, std::move(late));
    FF_CO_TRY(co_await std::move(pausing));
    if (end != End::unknown) continue;
    // What was sent is dead or done before anything is read again.
    auto fencing = fence(deadline_ns);
    FF_CO_TRY(co_await std::move(fencing));
  }
}

Task<Result<void>> EtcdEngine::run(Function function, int64_t deadline_ns) {
  bool unknown = false;
  auto running = run_attempts(std::move(function), deadline_ns, unknown);
  auto result = co_await std::move(running);
  if (!result && result.error().code == Errc::deadline && unknown) {
    co_return fail(Errc::unreachable, "etcd has not said whether a transaction was committed");
  }
  co_return result;
}

Task<Result<void>> EtcdEngine::view(Function function, int64_t deadline_ns) {
  for (;;) {
    Transaction txn(*this, kNoLimit, deadline_ns);
    auto running = function(txn);
    auto result = co_await std::move(running);
    FF_CHECK(txn.writes().empty());
    if (!txn.outdated()) co_return result;
  }
}

}  // namespace ff::kv
