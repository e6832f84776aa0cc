// keyspace_scan.cc: fills a page from several partitions.
#include "storage/gateway/keyspace_scan.h"

#include <algorithm>
#include <utility>

#include "platform/base/wait.h"

namespace ff::gateway {

namespace {

// The lowest bits of a cursor.
constexpr uint64_t kPartitionMask = kvstore::kSlots - 1;
// So few hashes differ in these bits only that a page goes beyond them.
constexpr size_t kPageLeast = 8;
constexpr int kRandomTries = 16;

void add_live_keys(StoreView& view, std::vector<std::string> keys, KeyPage& page) {
  for (std::string& key : keys) {
    const auto info = view.store().find(key);
    if (info && *info) page.keys.push_back(std::move(key));
  }
}

// One of the partitions by chance, each as likely as it has keys; empty: there are no keys.
std::optional<uint32_t> random_partition(kvstore::Store& store,
                                         const std::vector<uint32_t>& partitions, Rng& rng) {
  uint64_t keys = 0;
  for (const uint32_t i : partitions) keys += store.counts(i).keys;
  if (keys == 0) return std::nullopt;
  uint64_t chosen = rng.next() % keys;
  for (const uint32_t i : partitions) {
    const uint64_t own = store.counts(i).keys;
    if (chosen < own) return i;
    chosen -= own;
  }
  return std::nullopt;
}

}  // namespace

// The cursor of the store is rounded down: its low bits tell almost no two keys apart.
Task<Result<KeyPage>> read_key_page(StoreView& view, uint64_t cursor, size_t count) {
  kvstore::Store& store = view.store();
  KeyPage page;
  FF_CO_TRY(const auto own, view.access().own_partitions());
  auto partition = std::lower_bound(own.begin(), own.end(), cursor & kPartitionMask);
  uint64_t at = cursor & ~kPartitionMask;
  while (partition != own.end() && page.keys.size() < count) {
    const size_t limit = std::max(count - page.keys.size(), kPageLeast);
    auto found = co_await store.scan(*partition, at, limit);
    if (!found) co_return StoreAccess::reply_of(found.error());
    add_live_keys(view, std::move(found->keys), page);
    at = found->next & ~kPartitionMask;
    if (at == 0) ++partition;
    YieldWait yield(view.access().loop);
    FF_CO_TRY(co_await yield);
  }
  if (partition != own.end()) page.next = at | *partition;
  co_return page;
}

Task<Result<std::optional<std::string>>> random_key(StoreView& view, Rng& rng) {
  kvstore::Store& store = view.store();
  std::optional<std::string> none;
  FF_CO_TRY(const auto own, view.access().own_partitions());
  for (int attempt = 0; attempt < kRandomTries; attempt++) {
    const auto partition = random_partition(store, own, rng);
    if (!partition) break;
    uint64_t from = rng.next();
    for (int turn = 0; turn < 2;) {
      auto found = co_await store.scan(*partition, from, 1);
      if (!found) co_return StoreAccess::reply_of(found.error());
      KeyPage page;
      add_live_keys(view, std::move(found->keys), page);
      if (!page.keys.empty()) co_return std::optional(std::move(page.keys.front()));
      from = found->next;
      if (from == 0) turn++;  // behind the last hash the first one is next
      YieldWait yield(view.access().loop);
      FF_CO_TRY(co_await yield);
    }
  }
  co_return none;
}

}  // namespace ff::gateway
