// The position of a commit in the history of a store. A client whose change was acknowledged before
// it was durable keeps it, and can later check whether the change was lost (as the write verifier
// of NFS, RFC 8881).
#pragma once

#include <cstdint>

namespace ff::kv {

// A store begins a new generation each time it is opened; commits are lost only at the end of a
// generation. Positions count commits across generations; after a loss they continue from the last
// commit that survived.
struct CommitPosition {
  uint64_t generation = 0;  // random; 0: the commit was durable when it was acknowledged
  uint64_t position = 0;
  bool operator==(const CommitPosition&) const = default;
};

// Number of generations whose end position a store remembers.
constexpr size_t kGenerationsMax = 256;

}  // namespace ff::kv
