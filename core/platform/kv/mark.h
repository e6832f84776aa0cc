// Where a store stood when it had committed something: what somebody keeps who was answered before
// the store had made it durable, to ask later whether it still is there.
#pragma once

#include <cstdint>

namespace ff::kv {

// Generations are what a store was between two times that it was opened: what it loses, it loses
// with the end of one. Positions count its commits up, from one generation to the next; after a
// loss they go on from where the rest ends.
struct Mark {
  uint64_t generation = 0;  // random; 0: what was answered was durable
  uint64_t position = 0;
  bool operator==(const Mark&) const = default;
};

// Of how many generations a store knows where they ended.
constexpr size_t kGenerationsMax = 256;

}  // namespace ff::kv
