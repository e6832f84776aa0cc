// Pieces of an operation, on which the ranks work in parallel: every element of every output is in
// exactly one piece, and no piece reads what another piece writes.
#pragma once

#include <cstdint>

#include "training/collective/collective_request.h"

namespace ff::collective {

// Of each output. Small enough to use all cores and to stay in the L2 cache, large enough that
// claiming a piece costs little.
constexpr uint64_t kPieceBytes = 256 * 1024;

constexpr uint32_t kAllRanks = UINT32_MAX;

struct Piece {
  uint32_t from = kAllRanks;  // rank whose input is read
  uint32_t to = kAllRanks;    // rank whose output is written
  uint64_t in_at = 0;         // bytes from the start of the input
  uint64_t out_at = 0;        // and of the output
  uint64_t count = 0;         // elements
};

// Elements of a piece when all ranks are on one host.
uint64_t piece_elements(const CollectiveRequest& request);
// Number of pieces with at most `elements` elements.
uint64_t piece_count(const CollectiveRequest& request, uint32_t ranks, uint64_t elements);
// index < piece_count().
Piece piece_of(const CollectiveRequest& request, uint32_t ranks, uint64_t elements, uint64_t index);

}  // namespace ff::collective
