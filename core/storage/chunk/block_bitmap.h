// Which blocks of one size class are in use: one bitmap per group of blocks. Pure bookkeeping;
// block_store.h does the file operations.
//
// Groups are reserved one by one when needed and released when empty. Allocation prefers the lowest
// free block, so that high groups become empty.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "storage/chunk/layout.h"

namespace ff::chunk {

class BlockBitmap {
 public:
  explicit BlockBitmap(SizeClass size_class) : size_class_(size_class) {}

  // Marks a block as used and reserves its group. Returns false when the block was in use already.
  bool mark_used(uint64_t number);
  // The lowest free block of the reserved groups; nothing when all are used.
  std::optional<uint64_t> allocate();
  void free(uint64_t number);

  // The lowest group that is not reserved; argument for reserve_group().
  uint64_t first_unreserved_group() const;
  void reserve_group(uint64_t group);
  // Reserved groups without a used block, highest first, except `kept` for the next allocations.
  std::vector<uint64_t> empty_groups(size_t kept = 1) const;
  void release_group(uint64_t group);
  bool is_reserved(uint64_t group) const { return groups_.contains(group); }

  // Groups before `end` that are not reserved, as ranges [first, last).
  std::vector<std::pair<uint64_t, uint64_t>> unreserved_ranges(uint64_t end) const;

  uint64_t used_blocks() const { return used_; }
  uint64_t reserved_bytes() const { return groups_.size() * group_bytes(size_class_); }

 private:
  struct Group {
    std::array<uint64_t, kGroupBlocks / 64> bits{};  // 1: in use
    uint16_t used = 0;
  };

  const SizeClass size_class_;
  std::map<uint64_t, Group> groups_;            // reserved groups
  std::set<uint64_t> groups_with_free_blocks_;  // group numbers
  uint64_t used_ = 0;                           // blocks
};

}  // namespace ff::chunk
