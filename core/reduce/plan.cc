// plan.cc: blocks of ranks, cut into pieces.
#include "reduce/plan.h"

#include <algorithm>

#include "base/check.h"
#include "simd/reduce.h"

namespace ff::reduce {

namespace {

uint64_t elements_of_piece(const Request& request) {
  return kPieceBytes / simd::size_of(request.type);
}

// Of one block: what one rank gives of an all-gather, gets of a reduce-scatter, or everything.
uint64_t pieces_of_block(const Request& request) {
  const uint64_t most = elements_of_piece(request);
  return request.count / most + (request.count % most != 0 ? 1 : 0);
}

bool has_blocks(Collective kind) {
  return kind == Collective::allgather || kind == Collective::reduce_scatter;
}

}  // namespace

uint64_t pieces_of(const Request& request, uint32_t ranks) {
  if (request.kind == Collective::barrier) return 0;
  return pieces_of_block(request) * (has_blocks(request.kind) ? ranks : 1);
}

Piece piece_of(const Request& request, uint32_t ranks, uint64_t index) {
  FF_CHECK(index < pieces_of(request, ranks));
  const uint64_t in_block = pieces_of_block(request);
  const auto block = static_cast<uint32_t>(index / in_block);
  const uint64_t first = index % in_block * elements_of_piece(request);
  const uint64_t size = simd::size_of(request.type);
  const uint64_t block_at = block * request.count * size;
  Piece piece{.in_at = first * size, .out_at = first * size};
  piece.count = std::min(elements_of_piece(request), request.count - first);
  switch (request.kind) {
    case Collective::barrier:
    case Collective::allreduce: break;
    case Collective::reduce: piece.to = request.root; break;
    case Collective::broadcast: piece.from = request.root; break;
    case Collective::allgather:
      piece.from = block;
      piece.out_at += block_at;
      break;
    case Collective::reduce_scatter:
      piece.to = block;
      piece.in_at += block_at;
      break;
  }
  return piece;
}

}  // namespace ff::reduce
