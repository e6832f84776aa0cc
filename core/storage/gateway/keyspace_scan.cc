// keyspace_scan.cc: fills a page from several partitions.
#include "storage/gateway/keyspace_scan.h"

#include <algorithm>
#include <utility>

namespace ff::gateway {

namespace {

// The lowest bits of a cursor.
constexpr uint64_t kPartitionMask = kvstore::kSlots - 1;
// So few hashes differ in these bits only that a page goes beyond them.
constexpr size_t kPageLeast = 8;
constexpr int kRandomTries = 16;

Error scan_error(const Error& error) { return fail(error.code, "ERR {}", error.message); }

void add_live_keys(StoreView& view, std::vector<std::string> keys, KeyPage& page) {
  for (std::string& key : keys) {
    const auto info = view.store().find(key);
    if (info && *info) page.keys.push_back(std::move(key));
  }
}

// A partition by chance, each as likely as it has keys; empty: there are no keys.
std::optional<uint32_t> random_partition(kvstore::Store& store, Rng& rng) {
  uint64_t keys = 0;
  for (uint32_t i = 0; i < store.partitions(); i++) keys += store.counts(i).keys;
  if (keys == 0) return std::nullopt;
  uint64_t chosen = rng.next() % keys;
  for (uint32_t i = 0; i < store.partitions(); i++) {
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
  uint64_t partition = cursor & kPartitionMask;
  uint64_t at = cursor & ~kPartitionMask;
  while (partition < store.partitions() && page.keys.size() < count) {
    uint64_t next = 0;
    if (store.owned(static_cast<uint32_t>(partition))) {
      const size_t limit = std::max(count - page.keys.size(), kPageLeast);
      auto found = co_await store.scan(static_cast<uint32_t>(partition), at, limit);
      if (!found) co_return scan_error(found.error());
      add_live_keys(view, std::move(found->keys), page);
      next = found->next & ~kPartitionMask;
    }
    at = next;
    if (next == 0) partition++;
  }
  if (partition < store.partitions()) page.next = at | partition;
  co_return page;
}

Task<Result<std::optional<std::string>>> random_key(StoreView& view, Rng& rng) {
  kvstore::Store& store = view.store();
  std::optional<std::string> none;
  for (int attempt = 0; attempt < kRandomTries; attempt++) {
    const auto partition = random_partition(store, rng);
    if (!partition) break;
    uint64_t from = rng.next();
    for (int turn = 0; turn < 2; turn++) {
      auto found = co_await store.scan(*partition, from, 1);
      if (!found) co_return scan_error(found.error());
      KeyPage page;
      add_live_keys(view, std::move(found->keys), page);
      if (!page.keys.empty()) co_return std::optional(std::move(page.keys.front()));
      from = 0;  // behind the last hash the first one is next
    }
  }
  co_return none;
}

}  // namespace ff::gateway
