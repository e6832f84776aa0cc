// How an operation is cut into pieces that any rank of the host can work on: every element of every
// output is in one piece, and a piece reads nothing that another one writes.
#pragma once

#include <cstdint>

#include "training/collective/request.h"

namespace ff::collective {

// Of each output: small enough to share out among the cores and to stay in a core's cache, large
// enough that taking it costs nothing.
constexpr uint64_t kPieceBytes = 256 * 1024;

constexpr uint32_t kAllRanks = UINT32_MAX;

struct Piece {
  uint32_t from = kAllRanks;  // whose inputs
  uint32_t to = kAllRanks;    // whose outputs
  uint64_t in_at = 0;         // bytes from the input's start
  uint64_t out_at = 0;        // and from the output's
  uint64_t count = 0;         // elements
};

// Elements of a piece that stays on this host.
uint64_t piece_elements(const Request& request);
// How many pieces of at most so many elements there are.
uint64_t pieces_of(const Request& request, uint32_t ranks, uint64_t elements);
// index < pieces_of().
Piece piece_of(const Request& request, uint32_t ranks, uint64_t elements, uint64_t index);

}  // namespace ff::collective
