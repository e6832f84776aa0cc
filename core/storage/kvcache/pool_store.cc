// pool_store.cc: reads pools from the store, and writes each change before it becomes visible.
#include "storage/kvcache/pool_store.h"

#include <algorithm>
#include <set>

#include "platform/base/bytes.h"
#include "platform/base/log.h"
#include "platform/base/text.h"

namespace ff::kvcache {

namespace {

constexpr size_t kPlanMax = 1024;  // pages that one write changes: at most 33 MiB of blocks
constexpr size_t kReadsMax = 256;  // at the same time, when a pool is read
constexpr char kHeadFormat = 1;
constexpr size_t kGenerationBytes = 12;

Error no_pool(std::string_view name) {
  return Error{Errc::not_found, fmt::format("rank and namespace {}: not initialized", name),
               "Send initialize first."};
}

Error busy_pool(std::string_view name) {
  return fail(Errc::stale, "rank and namespace {}: the owner is changing", name);
}

uint32_t whole_seconds(int64_t ns) { return static_cast<uint32_t>(ns / kSecond); }

}  // namespace

PoolStore::Meters::Meters(Metrics& metrics)
    : evicted(metrics.counter("ff_kv_cache_evicted_total", "Keys whose pages went to other keys")),
      refused(metrics.counter("ff_kv_cache_refused_confirmations_total",
                              "Confirmations of pages that were not reserved for the key")),
      used(metrics.gauge("ff_kv_cache_used_pages", "Pages with a key, of the pools in memory")),
      reserved(metrics.gauge("ff_kv_cache_reserved_pages", "Pages that clients write to")),
      memory(metrics.gauge("ff_kv_cache_index_bytes", "Memory of the pools")) {}

PoolStore::PoolStore(kvstore::Store& store, Loop& loop, Rng& rng, Metrics& metrics)
    : store_(store), loop_(loop), secret_(rng.hex_id()), meters_(metrics) {}

PoolTime PoolStore::now() const {
  return {.wall_s = whole_seconds(loop_.clock().wall_ns()),
          .steady_s = whole_seconds(loop_.now_ns())};
}

std::string PoolStore::encode_head(const PoolHead& head) {
  std::string text(1, kHeadFormat);
  append_le(text, head.pages);
  append_le(text, head.current.number);
  append_le(text, head.current.blocks);
  for (const Generation& generation : head.cleared) {
    append_le(text, generation.number);
    append_le(text, generation.blocks);
  }
  return text;
}

std::optional<PoolStore::PoolHead> PoolStore::parse_head(std::string_view text) {
  if (text.size() < 1 + sizeof(uint64_t) + kGenerationBytes || text[0] != kHeadFormat) {
    return std::nullopt;
  }
  PoolHead head;
  head.pages = load_le<uint64_t>(as_bytes(text).data() + 1);
  text.remove_prefix(1 + sizeof(uint64_t));
  if (text.size() % kGenerationBytes != 0 || head.pages > kPagesMax) return std::nullopt;
  for (; !text.empty(); text.remove_prefix(kGenerationBytes)) {
    const std::byte* const at = as_bytes(text).data();
    head.cleared.push_back(
        {.number = load_le<uint64_t>(at), .blocks = load_le<uint32_t>(at + sizeof(uint64_t))});
  }
  head.current = head.cleared.front();
  head.cleared.erase(head.cleared.begin());
  if (uint64_t{head.current.blocks} > kPagesMax / kPagesPerBlock) return std::nullopt;
  return head;
}

std::string PoolStore::owner(const PoolName& name) const {
  const uint32_t partition = store_.partition_of(head_key(name.text()));
  return store_.owned(partition) ? std::string() : store_.owner(partition);
}

uint64_t PoolStore::keys() const {
  uint64_t all = 0;
  for (const auto& [name, pool] : pools_) all += pool->pages == nullptr ? 0 : pool->pages->used();
  return all;
}

void PoolStore::update_gauges() {
  uint64_t used = 0, reserved = 0, memory = 0;
  for (const auto& [name, pool] : pools_) {
    if (pool->pages == nullptr) continue;
    used += pool->pages->used();
    reserved += pool->pages->reserved();
    memory += pool->pages->memory_bytes();
  }
  meters_.used.set(static_cast<int64_t>(used));
  meters_.reserved.set(static_cast<int64_t>(reserved));
  meters_.memory.set(static_cast<int64_t>(memory));
}

void PoolStore::drop(Pool& pool) {
  pool.pages.reset();
  update_gauges();
}

// A pool has a place here only if it is in the store: nobody can fill the memory with names.
Result<PoolStore::Pool*> PoolStore::find(const PoolName& name) {
  const std::string text = name.text();
  const auto found = pools_.find(text);
  if (found != pools_.end()) return found->second.get();
  FF_TRY(const auto info, store_.find(head_key(text)));
  if (!info) return no_pool(printable(text));
  return pools_.emplace(text, std::make_unique<Pool>(loop_, text)).first->second.get();
}

Result<bool> PoolStore::is_current(Pool& pool) {
  auto info = store_.find(head_key(pool.name));
  if (info && *info) return pool.pages != nullptr && (*info)->version == pool.version;
  // Whoever changes the pool now notices by himself.
  if (pool.changes.available() > 0) drop(pool);
  if (!info) return std::move(info).error();
  return no_pool(printable(pool.name));
}

Task<Result<void>> PoolStore::load_head(Pool& pool) {
  FF_CO_TRY(const auto entry, co_await store_.get(head_key(pool.name)));
  if (!entry) co_return no_pool(printable(pool.name));
  auto head = parse_head(entry->value);
  if (!head) {
    co_return fail(Errc::corrupt, "the record of rank and namespace {}: damaged, or of a newer ff",
                   printable(pool.name));
  }
  pool.head = std::move(*head);
  pool.version = entry->version;
  co_return Result<void>();
}

Task<Result<void>> PoolStore::load_blocks(Pool& pool) {
  auto pages = std::make_unique<PagePool>(pool.head.pages, secret_);
  const uint32_t blocks = pool.head.current.blocks;
  for (uint32_t first = 0; first < blocks; first += kReadsMax) {
    std::vector<std::string> keys;
    const auto end = std::min<uint32_t>(blocks, first + kReadsMax);
    for (uint32_t i = first; i < end; ++i) keys.push_back(block_key(pool, pool.head.current, i));
    const auto entries = co_await store_.get_many(std::move(keys));
    for (uint32_t i = first; i < end; ++i) {
      const auto& entry = entries[i - first];
      if (!entry) co_return entry.error();
      if (!*entry) continue;
      auto loaded = pages->load_block(i, (*entry)->value);
      if (!loaded) {
        co_return std::move(loaded).error().with_context("rank and namespace " +
                                                         printable(pool.name));
      }
    }
  }
  pages->finish_load(blocks, now());
  // Was it written by another process meanwhile?
  FF_CO_TRY(const auto info, store_.find(head_key(pool.name)));
  if (!info || info->version != pool.version) co_return busy_pool(printable(pool.name));
  pool.pages = std::move(pages);
  co_return Result<void>();
}

Task<Result<void>> PoolStore::load(Pool& pool) {
  pool.pages.reset();
  FF_CO_TRY(co_await load_head(pool));
  auto loaded = co_await load_blocks(pool);
  if (!loaded) {
    Error error = std::move(loaded).error();
    if (error.code == Errc::corrupt) error.hint = "Send clear to make it empty.";
    co_return error;
  }
  co_await clean(pool);
  if (pool.pages == nullptr) co_return busy_pool(printable(pool.name));
  update_gauges();
  log_info("a pool of pages was read", {{"pool", printable(pool.name)},
                                        {"pages", pool.head.pages},
                                        {"keys", pool.pages->used()},
                                        {"reserved", pool.pages->reserved()}});
  co_return Result<void>();
}

Task<Result<void>> PoolStore::ensure_loaded(Pool& pool) {
  FF_CO_TRY(const bool current, is_current(pool));
  if (!current) {
    FF_CO_TRY(co_await load(pool));
  }
  co_return Result<void>();
}

Task<Result<PagePool*>> PoolStore::open(PoolName name) {
  FF_CO_TRY(Pool* const pool, find(name));
  FF_CO_TRY(const bool current, is_current(*pool));
  if (!current) {
    // It is being read or changed, or must be read.
    FF_CO_TRY(const auto permit, co_await pool->changes.acquire(1));
    FF_CO_TRY(co_await ensure_loaded(*pool));
  }
  co_return pool->pages.get();
}

// Writes the record of the pool with `changes`.
Task<Result<void>> PoolStore::write(Pool& pool, PoolHead head,
                                    std::vector<kvstore::Change> changes) {
  kvstore::Change record;
  record.key = head_key(pool.name);
  record.value = encode_head(head);
  std::vector<kvstore::Precondition> former(1);
  former[0].key = record.key;
  former[0].version = pool.version;
  changes.push_back(std::move(record));
  FF_CO_TRY(const auto applied, co_await store_.apply(std::move(changes), std::move(former)));
  if (!applied.done) {
    drop(pool);
    co_return busy_pool(printable(pool.name));
  }
  pool.head = std::move(head);
  pool.version = applied.version;
  co_return Result<void>();
}

Task<Result<void>> PoolStore::commit(Pool& pool, const PagePlan& plan) {
  if (plan.empty()) co_return Result<void>();
  const PoolTime time = now();
  PoolHead head = pool.head;
  head.current.blocks = pool.pages->blocks();
  std::vector<kvstore::Change> changes;
  std::optional<uint32_t> last;
  for (const auto& [page, change] : plan) {
    const uint32_t block = page / kPagesPerBlock;
    if (last == block) continue;
    last = block;
    kvstore::Change& stored = changes.emplace_back();
    stored.key = block_key(pool, head.current, block);
    stored.value = pool.pages->encode_block(block, plan, time);
    if (stored.value.empty()) stored.kind = kvstore::Change::Kind::remove;
  }
  FF_CO_TRY(co_await write(pool, std::move(head), std::move(changes)));
  meters_.evicted.add(pool.pages->commit(plan, time));
  update_gauges();
  co_return Result<void>();
}

Task<Result<void>> PoolStore::initialize(PoolName name, uint64_t pages) {
  const std::string text = name.text();
  FF_CO_TRY(const auto info, store_.find(head_key(text)));
  if (info) {
    FF_CO_TRY(const PagePool* const pool, co_await open(std::move(name)));
    if (pool->pages() != pages) {
      log_warning("a pool keeps its size",
                  {{"pool", printable(text)}, {"pages", pool->pages()}, {"asked", pages}});
    }
    co_return Result<void>();
  }
  const PoolHead head{.pages = pages};
  std::vector<kvstore::Change> changes(1);
  changes[0].key = head_key(text);
  changes[0].value = encode_head(head);
  std::vector<kvstore::Precondition> absent(1);
  absent[0].key = changes[0].key;
  // Not done: another client has made it.
  FF_CO_TRY(const auto applied, co_await store_.apply(std::move(changes), std::move(absent)));
  log_info("a pool of pages was made",
           {{"pool", printable(text)}, {"pages", pages}, {"new", applied.done}});
  co_return Result<void>();
}

Task<Result<std::vector<Reservation>>> PoolStore::reserve(PoolName name,
                                                          std::vector<std::string_view> keys) {
  FF_CO_TRY(Pool* const pool, find(name));
  FF_CO_TRY(const auto permit, co_await pool->changes.acquire(1));
  FF_CO_TRY(co_await ensure_loaded(*pool));
  std::vector<Reservation> results(keys.size());
  std::set<uint32_t> keep;
  std::vector<size_t> missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto page = pool->pages->find(keys[i]);
    if (!page) {
      missing.push_back(i);
      continue;
    }
    pool->pages->touch(*page, now());
    keep.insert(*page);
    results[i] = {.exists = true, .page = *page};
  }
  for (size_t next = 0; next < missing.size();) {
    PagePlan plan;
    PagePicker picker(*pool->pages, keep, now());
    for (; next < missing.size() && plan.size() < kPlanMax; ++next) {
      const auto page = picker.next();
      if (!page) break;
      const size_t i = missing[next];
      plan[*page] = {.state = PageState::reserved, .key = std::string(PackedKey(keys[i]).text())};
      results[i].page = *page;
    }
    if (plan.empty()) break;
    FF_CO_TRY(co_await commit(*pool, plan));
  }
  co_return results;
}

Task<Result<void>> PoolStore::confirm(PoolName name, std::vector<KeyPage> written,
                                      std::vector<int64_t> released) {
  FF_CO_TRY(Pool* const pool, find(name));
  FF_CO_TRY(const auto permit, co_await pool->changes.acquire(1));
  FF_CO_TRY(co_await ensure_loaded(*pool));
  const auto valid = [&](int64_t page) {
    return page >= 0 && static_cast<uint64_t>(page) < pool->head.pages;
  };
  size_t next = 0, next_release = 0;
  for (;;) {
    PagePlan plan;
    for (; next < written.size() && plan.size() < kPlanMax; ++next) {
      const auto& [key, page] = written[next];
      PagePool::Confirmed confirmed{.planned = true};
      if (valid(page)) confirmed = pool->pages->confirm(key, static_cast<uint32_t>(page), plan);
      if (!confirmed.planned) break;
      if (!confirmed.valid) meters_.refused.add();
    }
    for (; next == written.size() && next_release < released.size() && plan.size() < kPlanMax;
         ++next_release) {
      const int64_t page = released[next_release];
      if (valid(page) && !pool->pages->release(static_cast<uint32_t>(page), plan)) break;
    }
    if (plan.empty()) co_return Result<void>();
    FF_CO_TRY(co_await commit(*pool, plan));
  }
}

Task<Result<void>> PoolStore::remove(PoolName name, std::vector<std::string_view> keys) {
  FF_CO_TRY(Pool* const pool, find(name));
  FF_CO_TRY(const auto permit, co_await pool->changes.acquire(1));
  FF_CO_TRY(co_await ensure_loaded(*pool));
  for (size_t next = 0; next < keys.size();) {
    PagePlan plan;
    while (next < keys.size() && plan.size() < kPlanMax && pool->pages->remove(keys[next], plan)) {
      ++next;
    }
    FF_CO_TRY(co_await commit(*pool, plan));
  }
  co_return Result<void>();
}

// A damaged pool can be cleared: only its record is read.
Task<Result<void>> PoolStore::clear(PoolName name) {
  FF_CO_TRY(Pool* const pool, find(name));
  FF_CO_TRY(const auto permit, co_await pool->changes.acquire(1));
  FF_CO_TRY(const bool current, is_current(*pool));
  if (!current) {
    FF_CO_TRY(co_await load_head(*pool));
  }
  PoolHead head = pool->head;
  if (head.current.blocks > 0) head.cleared.push_back(head.current);
  head.current = {.number = head.current.number + 1};
  std::vector<kvstore::Change> none;
  FF_CO_TRY(co_await write(*pool, std::move(head), std::move(none)));
  pool->pages = std::make_unique<PagePool>(pool->head.pages, secret_);
  update_gauges();
  co_await clean(*pool);
  co_return Result<void>();
}

Task<void> PoolStore::clean(Pool& pool) {
  const auto removed = co_await remove_cleared(pool);
  if (removed) co_return;
  log_warning("pages of a cleared pool still take space; they go when it is read again",
              {{"pool", printable(pool.name)}, {"error", removed.error().message}});
}

Task<Result<void>> PoolStore::remove_cleared(Pool& pool) {
  while (!pool.head.cleared.empty()) {
    const Generation generation = pool.head.cleared.back();
    PoolHead head = pool.head;
    head.cleared.pop_back();
    for (uint32_t first = 0;; first += kPlanMax) {
      const bool last = generation.blocks - first <= kPlanMax;
      const uint32_t end = last ? generation.blocks : first + static_cast<uint32_t>(kPlanMax);
      std::vector<kvstore::Change> changes;
      for (uint32_t i = first; i < end; ++i) {
        kvstore::Change& removal = changes.emplace_back();
        removal.kind = kvstore::Change::Kind::remove;
        removal.key = block_key(pool, generation, i);
      }
      FF_CO_TRY(co_await write(pool, last ? head : pool.head, std::move(changes)));
      if (last) break;
    }
  }
  co_return Result<void>();
}

}  // namespace ff::kvcache
