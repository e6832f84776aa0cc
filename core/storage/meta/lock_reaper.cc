// lock_reaper.cc: compares each lock record with its last observation.
#include "storage/meta/lock_reaper.h"

#include <utility>

#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {

namespace {

constexpr int64_t kLockTimeoutNs = 30 * kSecond;

}  // namespace

LockReaper::LockReaper(kv::Engine& engine, Loop& loop, Metrics& metrics)
    : engine_(engine),
      loop_(loop),
      lapsed_(metrics.counter("ff_meta_lapsed_locks_total",
                              "File locks released because their owners stopped renewing them")) {}

Task<Result<LockReaper::Records>> LockReaper::records() {
  Records records;
  kv::TxnFunction function = [&records](kv::Txn& txn) -> Task<Result<void>> {
    records.clear();
    auto scanning = scan_records(
        txn, keys::kLock, [&records](const kv::Entry& entry) { records[entry.key] = entry.value; });
    co_return co_await std::move(scanning);
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), loop_.now_ns() + kLockTimeoutNs));
  co_return records;
}

Task<Result<void>> LockReaper::release(std::string key, std::string record) {
  bool taken = false;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto now, co_await txn.get(key));
    taken = now == record;
    if (taken) txn.erase(key);
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), loop_.now_ns() + kLockTimeoutNs));
  if (taken) lapsed_.add();
  co_return Result<void>();
}

Task<Result<void>> LockReaper::reap() {
  FF_CO_TRY(const Records now, co_await records());
  std::map<std::string, ObservedLock> seen;
  for (const auto& [key, record] : now) {
    const auto before = observed_.find(key);
    const bool same = before != observed_.end() && before->second.record == record;
    seen[key] = {record, same ? before->second.since_ns : loop_.now_ns()};
  }
  observed_ = seen;
  for (const auto& [key, lock] : seen) {
    if (loop_.now_ns() - lock.since_ns < kLockExpiryNs) continue;
    FF_CO_TRY(co_await release(key, lock.record));
  }
  co_return Result<void>();
}

}  // namespace ff::meta
