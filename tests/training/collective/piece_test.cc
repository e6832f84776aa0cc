// Pieces of an operation: every element of every output is made once, from the right inputs.
#include "training/collective/piece.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ff::collective {
namespace {

constexpr uint32_t kPieceRanks = 3;
constexpr std::array kPieceKinds = {Collective::allreduce, Collective::reduce,
                                    Collective::broadcast, Collective::allgather,
                                    Collective::reduce_scatter};

// Which bytes of each rank's output come from which ranks and which offset of their inputs.
struct Source {
  std::set<uint32_t> ranks;
  uint64_t at = 0;
  bool operator==(const Source&) const = default;
};
std::map<std::pair<uint32_t, uint64_t>, Source> sources(const CollectiveRequest& request) {
  std::map<std::pair<uint32_t, uint64_t>, Source> all;
  const uint64_t size = simd::size_of(request.type);
  for (uint64_t i = 0; i < piece_count(request, kPieceRanks, piece_elements(request)); i++) {
    const Piece piece = piece_of(request, kPieceRanks, piece_elements(request), i);
    EXPECT_LE(piece.count * size, kPieceBytes);
    EXPECT_GT(piece.count, 0u);
    Source source;
    for (uint32_t rank = 0; rank < kPieceRanks; rank++) {
      if (piece.from == kAllRanks || piece.from == rank) source.ranks.insert(rank);
    }
    for (uint32_t rank = 0; rank < kPieceRanks; rank++) {
      if (piece.to != kAllRanks && piece.to != rank) continue;
      // All elements of a piece have the same source; check the first and the last one.
      for (const uint64_t element : {uint64_t{0}, piece.count - 1}) {
        source.at = piece.in_at + element * size;
        const auto [made, is_new] = all.insert({{rank, piece.out_at + element * size}, source});
        EXPECT_TRUE(is_new || piece.count == 1) << "made twice";
      }
    }
  }
  return all;
}

TEST(PieceTest, EveryElementOfEveryOutputIsMadeOnce) {
  for (const Collective kind : kPieceKinds) {
    for (const simd::DataType type :
         {simd::DataType::f32, simd::DataType::u8, simd::DataType::f64}) {
      const uint64_t piece = kPieceBytes / simd::size_of(type);
      for (const uint64_t count :
           {uint64_t{0}, uint64_t{1}, piece - 1, piece, piece + 1, 3 * piece, 3 * piece + 5}) {
        const CollectiveRequest request{.kind = kind, .type = type, .root = 1, .count = count};
        uint64_t made = 0, wanted = 0;
        for (uint64_t i = 0; i < piece_count(request, kPieceRanks, piece_elements(request)); i++) {
          const Piece one = piece_of(request, kPieceRanks, piece_elements(request), i);
          made += one.count * simd::size_of(type) * (one.to == kAllRanks ? kPieceRanks : 1);
        }
        for (uint32_t rank = 0; rank < kPieceRanks; rank++)
          wanted += output_bytes(request, rank, kPieceRanks);
        EXPECT_EQ(made, wanted) << text_of(request);
        (void)sources(request);
      }
    }
  }
}

TEST(PieceTest, OutputsComeFromTheRightInputs) {
  const uint64_t count = kPieceBytes / 4 + 1;  // of two pieces
  const uint64_t block = count * 4;
  const std::set<uint32_t> all = {0, 1, 2};
  const uint64_t last = block - 4;
  const auto of = [&](Collective kind) {
    return sources({.kind = kind, .root = 1, .count = count});
  };
  EXPECT_EQ(of(Collective::allreduce).at({2, last}), (Source{all, last}));
  EXPECT_EQ(of(Collective::reduce).at({1, last}), (Source{all, last}));
  EXPECT_FALSE(of(Collective::reduce).contains({0, last}));
  EXPECT_EQ(of(Collective::broadcast).at({2, last}), (Source{{1}, last}));
  EXPECT_EQ(of(Collective::allgather).at({0, 2 * block + last}), (Source{{2}, last}));
  EXPECT_EQ(of(Collective::reduce_scatter).at({2, last}), (Source{all, 2 * block + last}));
}

}  // namespace
}  // namespace ff::collective
