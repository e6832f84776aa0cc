// Which blocks of one class are in use: a bitmap for each group of blocks. Pure bookkeeping; the
// file behind it is somebody else's (blocks.h).
//
// Groups are reserved one by one as they are needed and dropped when they are empty. The lowest
// free block goes first, so that high groups run empty.
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

class Space {
 public:
  explicit Space(Class of) : of_(of) {}

  // Marks a block as used, and its group as reserved. False when it is in use already.
  bool take(uint64_t number);
  // The lowest free block of the reserved groups; nothing when all are used.
  std::optional<uint64_t> allocate();
  void free(uint64_t number);

  // The lowest group that is not reserved, for reserve().
  uint64_t next_group() const;
  void reserve(uint64_t group);
  // Reserved groups without a used block, highest first, but for one that is kept for what comes.
  std::vector<uint64_t> spare_groups() const;
  void drop(uint64_t group);
  bool reserved(uint64_t group) const { return groups_.contains(group); }

  // The groups before `end` that are not reserved, as ranges [first, last).
  std::vector<std::pair<uint64_t, uint64_t>> gaps(uint64_t end) const;

  uint64_t used_blocks() const { return used_; }
  uint64_t reserved_bytes() const { return groups_.size() * group_bytes(of_); }

 private:
  struct Group {
    std::array<uint64_t, kGroupBlocks / 64> bits{};  // 1: in use
    uint16_t used = 0;
  };

  const Class of_;
  std::map<uint64_t, Group> groups_;  // reserved ones
  std::set<uint64_t> roomy_;          // those with a free block
  uint64_t used_ = 0;                 // blocks
};

}  // namespace ff::chunk
