// page_pool.cc: pages in lists by their state, an index with chains, and the format of blocks.
#include "storage/kvcache/page_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "storage/kvstore/record.h"

namespace ff::kvcache {

namespace {

constexpr size_t kBucketsMin = 64;
constexpr size_t kPairsMax = 255;  // of digits that are packed
constexpr char kBlockFormat = 1;

constexpr std::array<uint8_t, 256> hex_digits() {
  std::array<uint8_t, 256> digits = {};
  digits.fill(0xff);
  for (uint8_t i = 0; i < 10; ++i) digits[size_t{'0'} + i] = i;
  for (uint8_t i = 0; i < 6; ++i) digits[size_t{'a'} + i] = static_cast<uint8_t>(10 + i);
  return digits;
}
constexpr auto kHexDigits = hex_digits();

// The pages of a block one after the other: the state, and unless it is free the time of the last
// use (32 bits), the length of the key (16 bits) and the key.
class BlockReader {
 public:
  explicit BlockReader(std::string_view stored) : left_(stored) {}

  template <class T>
  bool take(T& value) {
    if (left_.size() < sizeof(T)) return false;
    value = load_le<T>(as_bytes(left_).data());
    left_.remove_prefix(sizeof(T));
    return true;
  }
  bool take_text(size_t bytes, std::string_view& text) {
    if (left_.size() < bytes) return false;
    text = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  bool ended() const { return left_.empty(); }

 private:
  std::string_view left_;
};

void append_page(std::string& to, PageState state, uint32_t time_s, std::string_view key) {
  to += static_cast<char>(state);
  if (state == PageState::free) return;
  append_le(to, time_s);
  append_le(to, static_cast<uint16_t>(key.size()));
  to += key;
}

}  // namespace

PackedKey::PackedKey(std::string_view key) {  // NOLINT: bytes_ needs no initial value
  FF_CHECK(key.size() <= kKeyMax);
  size_t pairs = 0;
  while (pairs < kPairsMax && 2 * pairs + 1 < key.size()) {
    const uint8_t high = kHexDigits[static_cast<uint8_t>(key[2 * pairs])];
    const uint8_t low = kHexDigits[static_cast<uint8_t>(key[2 * pairs + 1])];
    if (((high | low) & 0xf0) != 0) break;
    bytes_[++pairs] = static_cast<char>(high << 4 | low);
  }
  bytes_[0] = static_cast<char>(pairs);
  const std::string_view rest = key.substr(2 * pairs);
  if (!rest.empty()) std::memcpy(bytes_.data() + 1 + pairs, rest.data(), rest.size());
  size_ = 1 + pairs + rest.size();
}

PagePool::PagePool(uint64_t pages, std::string secret)
    : pages_(pages), secret_(std::move(secret)), buckets_(kBucketsMin, kNone) {
  FF_CHECK(pages <= kPagesMax);
}

uint64_t PagePool::memory_bytes() const {
  return blocks_.size() * sizeof(Block) + blocks_.capacity() * sizeof(blocks_[0]) +
         buckets_.capacity() * sizeof(uint32_t) + key_bytes_;
}

std::string_view PagePool::key_of(const Page& page) {
  if (page.key == nullptr) return {};
  uint16_t bytes = 0;
  std::memcpy(&bytes, page.key.get(), sizeof(bytes));
  return {page.key.get() + sizeof(bytes), bytes};
}

void PagePool::set_key(Page& page, std::string_view packed) {
  if (page.key != nullptr) key_bytes_ -= key_of(page).size() + sizeof(uint16_t);
  page.key.reset();
  if (packed.empty()) return;
  const auto bytes = static_cast<uint16_t>(packed.size());
  page.key.reset(new char[sizeof(bytes) + bytes]);
  std::memcpy(page.key.get(), &bytes, sizeof(bytes));
  std::memcpy(page.key.get() + sizeof(bytes), packed.data(), bytes);
  key_bytes_ += bytes + sizeof(bytes);
}

uint32_t PagePool::hash_of(std::string_view packed) const {
  return static_cast<uint32_t>(kvstore::hash_key(secret_, packed).low);
}

std::optional<uint32_t> PagePool::find_packed(std::string_view packed) const {
  const uint32_t hash = hash_of(packed);
  uint32_t page = buckets_[hash & (buckets_.size() - 1)];
  while (page != kNone) {
    const Page& candidate = at(page);
    if (candidate.hash == hash && key_of(candidate) == packed) return page;
    page = candidate.chain;
  }
  return std::nullopt;
}

std::optional<uint32_t> PagePool::find(std::string_view key) const {
  return find_packed(PackedKey(key).text());
}

void PagePool::touch(uint32_t page, PoolTime now) {
  at(page).time_s = now.wall_s;
  unlink(page);
  append(page);
}

void PagePool::append(uint32_t page) {
  Page& added = at(page);
  List& list = list_of(added.state);
  added.before = list.last;
  added.after = kNone;
  (list.last == kNone ? list.first : at(list.last).after) = page;
  list.last = page;
  ++list.count;
}

void PagePool::unlink(uint32_t page) {
  const Page& gone = at(page);
  List& list = list_of(gone.state);
  (gone.before == kNone ? list.first : at(gone.before).after) = gone.after;
  (gone.after == kNone ? list.last : at(gone.after).before) = gone.before;
  --list.count;
}

void PagePool::index(uint32_t page) {
  if (used() > buckets_.size()) grow_index();
  Page& added = at(page);
  added.hash = hash_of(key_of(added));
  uint32_t& bucket = buckets_[added.hash & (buckets_.size() - 1)];
  added.chain = std::exchange(bucket, page);
}

void PagePool::unindex(uint32_t page) {
  uint32_t* link = &buckets_[at(page).hash & (buckets_.size() - 1)];
  while (*link != page) link = &at(*link).chain;
  *link = at(page).chain;
}

void PagePool::grow_index() {
  const auto old = std::exchange(buckets_, std::vector<uint32_t>(buckets_.size() * 2, kNone));
  for (uint32_t page : old) {
    while (page != kNone) {
      Page& moved = at(page);
      uint32_t& bucket = buckets_[moved.hash & (buckets_.size() - 1)];
      page = std::exchange(moved.chain, std::exchange(bucket, page));
    }
  }
}

bool PagePool::add_block() {
  const uint64_t first = uint64_t{blocks()} * kPagesPerBlock;
  if (first >= pages_) return false;
  blocks_.push_back(std::make_unique<Block>());
  const uint64_t end = std::min(pages_, first + kPagesPerBlock);
  for (uint64_t page = first; page < end; ++page) append(static_cast<uint32_t>(page));
  return true;
}

PagePool::Confirmed PagePool::confirm(std::string_view key, uint32_t page, PagePlan& plan) const {
  if (!known(page) || at(page).state == PageState::free) return {.planned = true};
  const PackedKey packed(key);
  const auto former = find_packed(packed.text());
  if (plan.contains(page) || (former && plan.contains(*former))) return {};
  // Two reservations of one key, confirmed together: the second one sees what the first has done.
  const auto same = [&](const auto& entry) {
    return entry.second.state == PageState::used && entry.second.key == packed.text();
  };
  if (!former && std::ranges::any_of(plan, same)) return {};
  if (key_of(at(page)) != packed.text()) return {.planned = true};
  if (at(page).state == PageState::reserved) {
    if (former) plan[*former] = {};
    plan[page] = {.state = PageState::used, .key = std::string(packed.text())};
  }
  return {.planned = true, .valid = true};
}

bool PagePool::release(uint32_t page, PagePlan& plan) const {
  if (!known(page)) return true;
  if (plan.contains(page)) return false;
  if (at(page).state == PageState::reserved) plan[page] = {};
  return true;
}

bool PagePool::remove(std::string_view key, PagePlan& plan) const {
  const auto page = find(key);
  if (!page) return true;
  if (plan.contains(*page)) return false;
  plan[*page] = {};
  return true;
}

void PagePool::set(uint32_t number, const PageChange& change, PoolTime now) {
  Page& page = at(number);
  if (page.state == PageState::used) unindex(number);
  unlink(number);
  set_key(page, change.key);
  page.state = change.state;
  page.time_s = change.state == PageState::reserved ? now.steady_s : now.wall_s;
  append(number);
  if (page.state == PageState::used) index(number);
}

uint64_t PagePool::commit(const PagePlan& plan, PoolTime now) {
  uint64_t evicted = 0;
  for (const auto& [page, change] : plan) {
    if (at(page).state == PageState::used && change.state == PageState::reserved) ++evicted;
    set(page, change, now);
  }
  return evicted;
}

std::string PagePool::encode_block(uint32_t block, const PagePlan& plan, PoolTime now) const {
  std::string stored(1, kBlockFormat);
  bool free = true;
  const uint32_t first = block * kPagesPerBlock;
  for (uint32_t page = first; page < first + kPagesPerBlock; ++page) {
    const Page& present = at(page);
    const auto change = plan.find(page);
    const bool changed = change != plan.end();
    const PageState state = changed ? change->second.state : present.state;
    const bool fresh = changed || state == PageState::reserved;
    append_page(stored, state, fresh ? now.wall_s : present.time_s,
                changed ? std::string_view(change->second.key) : key_of(present));
    free = free && state == PageState::free;
  }
  return free ? std::string() : stored;
}

Result<void> PagePool::load_block(uint32_t block, std::string_view stored) {
  const Error damaged =
      fail(Errc::corrupt, "the pages from {} on: damaged", uint64_t{block} * kPagesPerBlock);
  if (uint64_t{block} * kPagesPerBlock >= pages_) return damaged;
  while (blocks_.size() <= block) blocks_.push_back(std::make_unique<Block>());
  BlockReader reader(stored);
  char format = 0;
  if (!reader.take(format) || format != kBlockFormat) return damaged;
  for (Page& page : *blocks_[block]) {
    uint8_t state = 0;
    uint16_t bytes = 0;
    std::string_view key;
    if (!reader.take(state) || state > static_cast<uint8_t>(PageState::used)) return damaged;
    page.state = static_cast<PageState>(state);
    if (page.state == PageState::free) continue;
    const bool whole =
        reader.take(page.time_s) && reader.take(bytes) && reader.take_text(bytes, key);
    if (!whole || key.empty() || key.size() > kKeyMax + 1) return damaged;
    set_key(page, key);
  }
  if (!reader.ended()) return damaged;
  return {};
}

void PagePool::finish_load(uint32_t blocks, PoolTime now) {
  while (blocks_.size() < blocks) blocks_.push_back(std::make_unique<Block>());
  const uint64_t end = std::min(pages_, uint64_t{blocks_.size()} * kPagesPerBlock);
  std::vector<uint32_t> used_pages;
  for (uint32_t number = 0; number < end; ++number) {
    Page& page = at(number);
    if (page.state == PageState::used) {
      used_pages.push_back(number);
      continue;
    }
    if (page.state == PageState::reserved) page.time_s = now.steady_s;
    append(number);
  }
  std::ranges::sort(used_pages, [this](uint32_t left, uint32_t right) {
    return std::pair(at(left).time_s, left) < std::pair(at(right).time_s, right);
  });
  for (const uint32_t number : used_pages) {
    append(number);
    index(number);
  }
}

PagePicker::PagePicker(PagePool& pool, const std::set<uint32_t>& keep, PoolTime now)
    : pool_(pool), keep_(keep), now_(now), at_(pool.list_of(PageState::free).first) {}

std::optional<uint32_t> PagePicker::next() {
  if (stage_ == PageState::free) {
    if (at_ == PagePool::kNone && pool_.add_block()) {
      at_ = (pool_.blocks() - 1) * kPagesPerBlock;
    }
    if (at_ == PagePool::kNone) {
      stage_ = PageState::reserved;
      at_ = pool_.list_of(stage_).first;
    }
  }
  if (stage_ == PageState::reserved) {
    const bool lapsed =
        at_ != PagePool::kNone && now_.steady_s - pool_.at(at_).time_s >= kReservationS;
    if (!lapsed) {
      stage_ = PageState::used;
      at_ = pool_.list_of(stage_).first;
    }
  }
  if (at_ == PagePool::kNone || keep_.contains(at_)) return std::nullopt;
  const uint32_t page = at_;
  at_ = pool_.at(page).after;
  return page;
}

}  // namespace ff::kvcache
