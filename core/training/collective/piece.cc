// piece.cc: blocks of ranks, cut into pieces.
#include "training/collective/piece.h"

#include <algorithm>

#include "platform/base/check.h"
#include "platform/simd/reduce.h"

namespace ff::collective {

namespace {

// Of one block: the input of one rank of an all-gather, its output of a reduce-scatter, or all.
uint64_t pieces_of_block(const CollectiveRequest& request, uint64_t elements) {
  return request.count / elements + (request.count % elements != 0 ? 1 : 0);
}

bool has_blocks(Collective kind) {
  return kind == Collective::allgather || kind == Collective::reduce_scatter;
}

}  // namespace

uint64_t piece_elements(const CollectiveRequest& request) {
  return kPieceBytes / simd::size_of(request.type);
}

uint64_t piece_count(const CollectiveRequest& request, uint32_t ranks, uint64_t elements) {
  if (request.kind == Collective::barrier || uses_messages(request.kind)) return 0;
  return pieces_of_block(request, elements) * (has_blocks(request.kind) ? ranks : 1);
}

Piece piece_of(const CollectiveRequest& request, uint32_t ranks, uint64_t elements,
               uint64_t index) {
  FF_CHECK(index < piece_count(request, ranks, elements));
  const uint64_t in_block = pieces_of_block(request, elements);
  const auto block = static_cast<uint32_t>(index / in_block);
  const uint64_t first = index % in_block * elements;
  const uint64_t size = simd::size_of(request.type);
  const uint64_t block_at = block * request.count * size;
  Piece piece{.in_at = first * size, .out_at = first * size};
  piece.count = std::min(elements, request.count - first);
  switch (request.kind) {
    case Collective::barrier:
    case Collective::allreduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::alltoall: break;
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

}  // namespace ff::collective
