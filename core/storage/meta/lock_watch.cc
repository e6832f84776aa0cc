// lock_watch.cc: what has become of each lock since the last look.
#include "storage/meta/lock_watch.h"

#include <utility>

#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {

namespace {

constexpr int64_t kLockPatienceNs = 30 * kSecond;

}  // namespace

LockWatch::LockWatch(kv::Engine& engine, Loop& loop, Metrics& metrics)
    : engine_(engine),
      loop_(loop),
      lapsed_(metrics.counter("ff_meta_lapsed_locks_total",
                              "Locks of files taken from holders that had died")) {}

Task<Result<LockWatch::Records>> LockWatch::records() {
  Records records;
  kv::Function function = [&records](kv::Txn& txn) -> Task<Result<void>> {
    records.clear();
    auto scanning = scan_records(
        txn, keys::kLock, [&records](const kv::Entry& entry) { records[entry.key] = entry.value; });
    co_return co_await std::move(scanning);
  };
  auto viewing = engine_.view(std::move(function), loop_.now_ns() + kLockPatienceNs);
  FF_CO_TRY(co_await std::move(viewing));
  co_return records;
}

Task<Result<void>> LockWatch::take_away(std::string key, std::string record) {
  bool taken = false;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = txn.get(key);
    FF_CO_TRY(const auto now, co_await std::move(reading));
    taken = now == record;
    if (taken) txn.erase(key);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), loop_.now_ns() + kLockPatienceNs);
  FF_CO_TRY(co_await std::move(running));
  if (taken) lapsed_.add();
  co_return Result<void>();
}

Task<Result<void>> LockWatch::look() {
  auto reading = records();
  FF_CO_TRY(const Records now, co_await std::move(reading));
  std::map<std::string, Seen> seen;
  for (const auto& [key, record] : now) {
    const auto before = seen_.find(key);
    const bool same = before != seen_.end() && before->second.record == record;
    seen[key] = {record, same ? before->second.since_ns : loop_.now_ns()};
  }
  seen_ = seen;
  for (const auto& [key, lock] : seen) {
    if (loop_.now_ns() - lock.since_ns < kLockLapseNs) continue;
    auto taking = take_away(key, lock.record);
    FF_CO_TRY(co_await std::move(taking));
  }
  co_return Result<void>();
}

}  // namespace ff::meta
