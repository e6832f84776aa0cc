// space.cc: bitmaps of groups, and the set of groups with room.
#include "chunk/space.h"

#include <bit>

#include "base/check.h"

namespace ff::chunk {

Space::Group& Space::group_of(uint64_t number) {
  const uint64_t group = number / group_blocks(of_);
  if (group >= groups_.size()) groups_.resize(group + 1);
  return groups_[group];
}

bool Space::take(uint64_t number) {
  Group& group = group_of(number);
  const uint64_t index = number / group_blocks(of_);
  const uint64_t within = number % group_blocks(of_);
  uint64_t& word = group.bits[within / 64];
  const uint64_t bit = uint64_t{1} << within % 64;
  if ((word & bit) != 0) return false;
  if (!group.reserved) reserve(index);
  word |= bit;
  ++group.used;
  ++used_;
  if (group.used == group_blocks(of_)) roomy_.erase(index);
  return true;
}

std::optional<uint64_t> Space::allocate() {
  if (roomy_.empty()) return std::nullopt;
  const uint64_t index = *roomy_.begin();
  const Group& group = groups_[index];
  for (uint64_t word = 0;; ++word) {
    const auto within = word * 64 + static_cast<uint64_t>(std::countr_one(group.bits[word]));
    if (within == (word + 1) * 64) continue;
    FF_CHECK(within < group_blocks(of_));
    const uint64_t number = index * group_blocks(of_) + within;
    FF_CHECK(take(number));
    return number;
  }
}

void Space::free(uint64_t number) {
  Group& group = group_of(number);
  const uint64_t within = number % group_blocks(of_);
  uint64_t& word = group.bits[within / 64];
  const uint64_t bit = uint64_t{1} << within % 64;
  FF_CHECK((word & bit) != 0);
  word &= ~bit;
  --group.used;
  --used_;
  roomy_.insert(number / group_blocks(of_));
}

uint64_t Space::next_group() const {
  uint64_t group = 0;
  while (reserved(group)) ++group;
  return group;
}

bool Space::reserved(uint64_t group) const {
  return group < groups_.size() && groups_[group].reserved;
}

void Space::reserve(uint64_t group) {
  if (group >= groups_.size()) groups_.resize(group + 1);
  FF_CHECK(!groups_[group].reserved);
  groups_[group].reserved = true;
  ++reserved_;
  roomy_.insert(group);
}

std::vector<uint64_t> Space::spare_groups() const {
  std::vector<uint64_t> empty;
  for (auto group = roomy_.rbegin(); group != roomy_.rend(); ++group) {
    if (groups_[*group].used == 0) empty.push_back(*group);
  }
  if (!empty.empty()) empty.pop_back();
  return empty;
}

void Space::drop(uint64_t group) {
  FF_CHECK(reserved(group) && groups_[group].used == 0);
  groups_[group].reserved = false;
  --reserved_;
  roomy_.erase(group);
}

}  // namespace ff::chunk
