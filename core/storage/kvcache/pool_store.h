// The pools of pages (page_pool.h) of all ranks, in a store of keys and values (kvstore/store.h)
// that has nothing else. What a call here has acknowledged is not lost when the process dies, and
// holds for the process that takes the store over.
//
// A pool lies in one slot of the store, so that each change of it is one write. Its record "{NAME}"
// has its size; "{NAME}GENERATION:BLOCK" has 32 pages. Each change writes the first one, too: its
// version says whether the copy in memory is the newest. A pool is read when it is first asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "storage/kvcache/page_pool.h"
#include "storage/kvstore/store.h"

namespace ff::kvcache {

constexpr size_t kNamespaceMax = 255;  // bytes

// Each rank of a model has a pool for each kind of its pages.
struct PoolName {
  uint32_t rank = 0;
  std::string name_space = {};  // SGLang's `namespace`: "kv", "mamba"
  std::string text() const { return fmt::format("{}:{}", rank, name_space); }
};

struct Reservation {
  bool exists = false;  // the key has the page already
  int64_t page = -1;    // -1: there is none, all pages are reserved
};

class PoolStore {
 public:
  // All arguments outlive it.
  PoolStore(kvstore::Store& store, Loop& loop, Rng& rng, Metrics& metrics);

  // Errors of all calls. Errc::not_found: there is no such pool. Errc::stale: another process owns
  // it (owner()), or none does yet. Errc::corrupt: it is damaged; clear() makes it empty. Any
  // other: of the store; nothing has changed, unless the process loses the pool meanwhile.

  // Makes a pool of `pages` pages, at most kPagesMax. One that exists stays as it is.
  Task<Result<void>> initialize(PoolName name, uint64_t pages);
  // The pool for look-ups, until the next co_await; they only may use find() and touch().
  Task<Result<PagePool*>> open(PoolName name);
  // One page for each key, in their order; two for a key that is given twice and is new. Evicts
  // keys if it must, but none of these.
  Task<Result<std::vector<Reservation>>> reserve(PoolName name, std::vector<std::string_view> keys);
  // Keys get the pages that are reserved for them; all others of `written` are left out. Then
  // pages of `released` become free if they are reserved. Pages: any number.
  using KeyPage = std::pair<std::string_view, int64_t>;
  Task<Result<void>> confirm(PoolName name, std::vector<KeyPage> written,
                             std::vector<int64_t> released);
  Task<Result<void>> remove(PoolName name, std::vector<std::string_view> keys);
  // Makes all pages free, the reserved ones, too.
  Task<Result<void>> clear(PoolName name);

  // Where the process is that owns the pool (kvstore::Options::address); empty: nobody, or this
  // one.
  std::string owner(const PoolName& name) const;
  size_t pools() const { return pools_.size(); }  // that were asked for
  uint64_t keys() const;                          // of the pools in memory
  PoolTime now() const;

 private:
  struct Generation {
    uint64_t number = 0;
    uint32_t blocks = 0;
  };
  // The record of a pool.
  struct PoolHead {
    uint64_t pages = 0;
    Generation current = {};
    std::vector<Generation> cleared = {};  // whose records are not removed yet
  };
  struct Pool {
    Pool(Loop& loop, std::string pool_name) : name(std::move(pool_name)), changes(loop, 1) {}
    const std::string name;
    Semaphore changes;  // one change at a time
    PoolHead head = {};
    uint64_t version = 0;                  // of the record
    std::unique_ptr<PagePool> pages = {};  // null: not in memory
  };
  struct Meters {
    explicit Meters(Metrics& metrics);
    Counter& evicted;
    Counter& refused;
    Gauge& used;
    Gauge& reserved;
    Gauge& memory;
  };

  static std::string encode_head(const PoolHead& head);
  static std::optional<PoolHead> parse_head(std::string_view text);
  static std::string head_key(std::string_view name) { return fmt::format("{{{}}}", name); }
  static std::string block_key(const Pool& pool, Generation generation, uint32_t block) {
    return fmt::format("{{{}}}{}:{}", pool.name, generation.number, block);
  }
  Result<Pool*> find(const PoolName& name);
  // Whether the copy in memory is the newest; else, and with errors, it is dropped or must be read.
  Result<bool> is_current(Pool& pool);
  Task<Result<void>> load(Pool& pool);
  Task<Result<void>> load_head(Pool& pool);
  Task<Result<void>> load_blocks(Pool& pool);
  // `pool.changes` is held.
  Task<Result<void>> ensure_loaded(Pool& pool);
  Task<Result<void>> commit(Pool& pool, const PagePlan& plan);
  Task<Result<void>> write(Pool& pool, PoolHead head, std::vector<kvstore::Change> changes);
  // What a clear() has left in the store.
  Task<void> clean(Pool& pool);
  Task<Result<void>> remove_cleared(Pool& pool);
  void drop(Pool& pool);
  void update_gauges();

  kvstore::Store& store_;
  Loop& loop_;
  const std::string secret_;
  Meters meters_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> pools_;  // by their names
};

}  // namespace ff::kvcache
