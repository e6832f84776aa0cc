// leftover_sweep.cc: first the pages, then the record that names them: a round that is cut off is
// only repeated.
#include "storage/gateway/leftover_sweep.h"

#include <string>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::gateway {

namespace {

constexpr int64_t kLeftoverPauseNs = kSecond;
constexpr size_t kLeftoversAtOnce = 64;    // of a partition
constexpr size_t kPagesAtOnce = 1000;      // removed with one change
constexpr uint64_t kPagesInARow = 20'000;  // looked for, before others have their turn

kvstore::Change removal(std::string name, kvstore::RecordRole role) {
  kvstore::Change change;
  change.kind = kvstore::Change::Kind::remove;
  change.key = std::move(name);
  change.role = role;
  return change;
}

Task<Result<void>> remove_pages(const StoreAccess& access, PartSpace parts) {
  std::vector<kvstore::Change> changes;
  for (uint64_t page = 0; page < parts.next_page; page++) {
    std::string name = parts.name(page);
    FF_CO_TRY(const auto found, access.store.find_part(name));
    if (found) changes.push_back(removal(std::move(name), kvstore::RecordRole::part));
    if (changes.size() >= kPagesAtOnce) {
      std::vector<kvstore::Change> some;
      some.swap(changes);
      FF_CO_TRY(co_await access.store.apply(std::move(some)));
    } else if (page % kPagesInARow == kPagesInARow - 1) {
      YieldWait yield(access.loop);
      FF_CO_TRY(co_await yield);
    }
  }
  if (changes.empty()) co_return Result<void>();
  FF_CO_TRY(co_await access.store.apply(std::move(changes)));
  co_return Result<void>();
}

Task<Result<void>> sweep_one(const StoreAccess& access, KeyLocks& locks,
                             kvstore::Leftover leftover) {
  const bool is_head = leftover.entry.role == kvstore::RecordRole::owner;
  std::vector<std::string> keys;
  if (is_head) keys.push_back(leftover.key);
  KeyLocks::KeyLock lock(locks, std::move(keys), true);
  FF_CO_TRY(co_await lock.wait());
  if (is_head) {  // a command may have replaced it meanwhile, and left its collection
    FF_CO_TRY(const auto now, access.store.find_owner(leftover.key));
    if (!now || now->version != leftover.entry.version) co_return Result<void>();
  }
  const uint32_t slot =
      is_head ? kvstore::redis_slot(leftover.key) : kvstore::slot_of_part(leftover.key);
  std::string_view stored = leftover.entry.value;
  FF_CO_TRY(const PartSpace parts, PartSpace::take(stored, slot));
  FF_CO_TRY(co_await remove_pages(access, parts));
  std::vector<kvstore::Change> changes;
  changes.push_back(removal(leftover.key, leftover.entry.role));
  FF_CO_TRY(co_await access.store.apply(std::move(changes)));
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> sweep_leftovers_once(const StoreAccess& access, KeyLocks& locks) {
  for (uint32_t i = 0; i < access.store.partitions(); i++) {
    if (!access.store.owned(i)) continue;
    FF_CO_TRY(auto found, co_await access.store.leftovers(i, kLeftoversAtOnce));
    for (kvstore::Leftover& one : found) {
      auto swept = co_await sweep_one(access, locks, std::move(one));
      // What a damaged one names is not known: it stays, and the others go.
      if (!swept && swept.error().code != Errc::corrupt) co_return swept;
    }
  }
  co_return Result<void>();
}

Task<void> sweep_leftovers(const StoreAccess& access, KeyLocks& locks) {
  for (;;) {
    const auto slept = co_await sleep_for(access.loop, kLeftoverPauseNs);
    if (!slept) co_return;
    const auto swept = co_await sweep_leftovers_once(access, locks);
    if (swept || swept.error().code == Errc::stale || swept.error().code == Errc::interrupted) {
      continue;
    }
    log_warning("the pages of a removed value stay for now", {{"error", swept.error().message}});
  }
}

}  // namespace ff::gateway
