// The pages of one file that holds a KV cache, and which key has which of them: the index in
// memory. A page is free, reserved (a client writes to it, and nobody finds it yet) or used (it
// belongs to a key). No page has two keys at any time. pool_store.h makes changes durable.
//
// Changes have two steps, so that nobody sees one which is not durable: plans (PagePicker,
// confirm() and so on) say which pages are to change, and commit() changes them. A plan is valid
// until the next commit().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"

namespace ff::kvcache {

constexpr uint32_t kPagesPerBlock = 32;  // pages that are stored together, in one record
constexpr size_t kKeyMax = 1024;         // bytes of a key
constexpr uint64_t kPagesMax = uint64_t{1} << 31;
// A client that has not confirmed or released a page for so long has died: the page may go to
// another key.
constexpr uint32_t kReservationS = 600;

enum class PageState : uint8_t { free = 0, reserved = 1, used = 2 };

// A key as pages have it. Most keys are digests in hexadecimal digits, which take half of the space
// here; equal keys, and no others, have equal bytes.
class PackedKey {
 public:
  // At most kKeyMax bytes.
  explicit PackedKey(std::string_view key);
  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, kKeyMax + 1> bytes_;  // only the first size_ have a value
  size_t size_;
};

// What a page is to become.
struct PageChange {
  PageState state = PageState::free;
  std::string key = {};  // packed; empty: the page is free
};
using PagePlan = std::map<uint32_t, PageChange>;

struct PoolTime {
  uint32_t wall_s = 0;    // since 1970: outlives the process
  uint32_t steady_s = 0;  // of the loop
};

class PagePool {
 public:
  // `pages`: at most kPagesMax. `secret`: nobody who does not know it can choose keys that collide.
  PagePool(uint64_t pages, std::string secret);

  uint64_t pages() const { return pages_; }
  uint32_t blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  uint64_t used() const { return lists_[2].count; }
  uint64_t reserved() const { return lists_[1].count; }
  uint64_t memory_bytes() const;

  // The page of a key.
  std::optional<uint32_t> find(std::string_view key) const;
  // The key of this page was used now: others are evicted before it.
  void touch(uint32_t page, PoolTime now);

  // Plans. Each returns false if the page or the key has a place in the plan already: commit that
  // first. They change nothing where theirs would be wrong: a page is confirmed if it is reserved
  // for this key, released if it is reserved, and removed with a key that exists. What a key had
  // before it was confirmed becomes free.
  struct Confirmed {
    bool planned = false;
    bool valid = false;  // false: the page does not belong to the key
  };
  Confirmed confirm(std::string_view key, uint32_t page, PagePlan& plan) const;
  bool release(uint32_t page, PagePlan& plan) const;
  bool remove(std::string_view key, PagePlan& plan) const;

  // Makes a change. Returns how many keys lost their pages to others.
  uint64_t commit(const PagePlan& plan, PoolTime now);

  // A block as it is stored, with the changes of a plan; empty: all of its pages are free.
  std::string encode_block(uint32_t block, const PagePlan& plan, PoolTime now) const;
  // Before any other use: load_block() for each block that has pages which are not free, then
  // finish_load(). Reservations begin anew. Errc::corrupt.
  Result<void> load_block(uint32_t block, std::string_view stored);
  void finish_load(uint32_t blocks, PoolTime now);

 private:
  friend class PagePicker;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Page {
    std::unique_ptr<char[]> key = {};  // its length in 16 bits, then its bytes; null: free
    uint32_t hash = 0;
    uint32_t chain = kNone;  // the next page of the bucket
    uint32_t before = kNone, after = kNone;
    uint32_t time_s = 0;  // used: of the last use (wall); reserved: since when (steady)
    PageState state = PageState::free;
  };
  using Block = std::array<Page, kPagesPerBlock>;
  struct List {
    uint32_t first = kNone, last = kNone;
    uint64_t count = 0;
  };

  Page& at(uint32_t page) { return (*blocks_[page / kPagesPerBlock])[page % kPagesPerBlock]; }
  const Page& at(uint32_t page) const {
    return (*blocks_[page / kPagesPerBlock])[page % kPagesPerBlock];
  }
  static std::string_view key_of(const Page& page);
  uint32_t hash_of(std::string_view packed) const;
  std::optional<uint32_t> find_packed(std::string_view packed) const;
  bool known(uint32_t page) const { return page < pages_ && page / kPagesPerBlock < blocks(); }
  List& list_of(PageState state) { return lists_[static_cast<size_t>(state)]; }
  void append(uint32_t page);
  void unlink(uint32_t page);
  void index(uint32_t page);
  void unindex(uint32_t page);
  void grow_index();
  void set(uint32_t page, const PageChange& change, PoolTime now);
  void set_key(Page& page, std::string_view packed);
  // False: all pages have a place already.
  bool add_block();

  const uint64_t pages_;
  const std::string secret_;
  std::vector<std::unique_ptr<Block>> blocks_;  // of the pages that have been used so far
  std::array<List, 3> lists_;                   // of each state, the one that goes next in front
  std::vector<uint32_t> buckets_;               // the first page of each
  uint64_t key_bytes_ = 0;
};

// Chooses pages for new keys: free ones, those whose client has died, and then those that were used
// least recently. Valid until the next commit(); a page comes once.
class PagePicker {
 public:
  // `keep`: pages that must not be evicted.
  PagePicker(PagePool& pool, const std::set<uint32_t>& keep, PoolTime now);
  // Empty: there is none.
  std::optional<uint32_t> next();

 private:
  PagePool& pool_;
  const std::set<uint32_t>& keep_;
  const PoolTime now_;
  PageState stage_ = PageState::free;
  uint32_t at_;
};

}  // namespace ff::kvcache
