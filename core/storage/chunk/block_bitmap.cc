// block_bitmap.cc: bitmaps of the groups, and the set of groups with free blocks.
#include "storage/chunk/block_bitmap.h"

#include <algorithm>
#include <bit>

#include "platform/base/check.h"

namespace ff::chunk {

bool BlockBitmap::mark_used(uint64_t number) {
  const uint64_t index = number / group_blocks(size_class_);
  const uint64_t within = number % group_blocks(size_class_);
  auto found = groups_.find(index);
  if (found == groups_.end()) {
    reserve_group(index);
    found = groups_.find(index);
  }
  Group& group = found->second;
  uint64_t& word = group.bits[within / 64];
  const uint64_t bit = uint64_t{1} << within % 64;
  if ((word & bit) != 0) return false;
  word |= bit;
  ++group.used;
  ++used_;
  if (group.used == group_blocks(size_class_)) groups_with_free_blocks_.erase(index);
  return true;
}

std::optional<uint64_t> BlockBitmap::allocate() {
  if (groups_with_free_blocks_.empty()) return std::nullopt;
  const uint64_t index = *groups_with_free_blocks_.begin();
  const Group& group = groups_.at(index);
  for (uint64_t word = 0;; ++word) {
    const auto within = word * 64 + static_cast<uint64_t>(std::countr_one(group.bits[word]));
    if (within == (word + 1) * 64) continue;
    FF_CHECK(within < group_blocks(size_class_));
    const uint64_t number = index * group_blocks(size_class_) + within;
    FF_CHECK(mark_used(number));
    return number;
  }
}

void BlockBitmap::free(uint64_t number) {
  Group& group = groups_.at(number / group_blocks(size_class_));
  const uint64_t within = number % group_blocks(size_class_);
  uint64_t& word = group.bits[within / 64];
  const uint64_t bit = uint64_t{1} << within % 64;
  FF_CHECK((word & bit) != 0);
  word &= ~bit;
  --group.used;
  --used_;
  groups_with_free_blocks_.insert(number / group_blocks(size_class_));
}

uint64_t BlockBitmap::first_unreserved_group() const {
  uint64_t next = 0;
  for (const auto& [group, content] : groups_) {
    if (group != next) break;
    ++next;
  }
  return next;
}

void BlockBitmap::reserve_group(uint64_t group) {
  FF_CHECK(groups_.try_emplace(group).second);
  groups_with_free_blocks_.insert(group);
}

std::vector<std::pair<uint64_t, uint64_t>> BlockBitmap::unreserved_ranges(uint64_t end) const {
  std::vector<std::pair<uint64_t, uint64_t>> all;
  uint64_t next = 0;
  for (const auto& [group, content] : groups_) {
    if (group > next) all.emplace_back(next, group);
    next = group + 1;
  }
  if (next < end) all.emplace_back(next, end);
  return all;
}

std::vector<uint64_t> BlockBitmap::empty_groups(size_t kept) const {
  std::vector<uint64_t> empty;
  for (auto group = groups_with_free_blocks_.rbegin(); group != groups_with_free_blocks_.rend();
       ++group) {
    if (groups_.at(*group).used == 0) empty.push_back(*group);
  }
  empty.resize(empty.size() - std::min(empty.size(), kept));
  return empty;
}

void BlockBitmap::release_group(uint64_t group) {
  FF_CHECK(groups_.at(group).used == 0);
  groups_.erase(group);
  groups_with_free_blocks_.erase(group);
}

}  // namespace ff::chunk
