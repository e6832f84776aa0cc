// The route of a piece between the nodes of a job: partial sums go up to one node, the root, which
// then has the complete sum; the result goes down from there to all nodes.
//
//   tree  a double binary tree: two trees below the root, in which a node that is a leaf of one is
//         an inner node of the other, so that each carries half of the pieces (Sanders, Speck,
//         Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
//         NCCL; the Fire-Flyer paper). Each zone has its own pair of trees, and only the first
//         nodes of adjacent zones are connected (paper, section III: two zones).
//   ring  up and down along one ring; the root moves by one node with each piece.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ff::collective {

enum class Algorithm : uint8_t { automatic, tree, ring };
std::string_view algorithm_name(Algorithm algorithm);  // "auto", "tree", "ring"
std::optional<Algorithm> algorithm_of(std::string_view name);

// Two in the tree of a zone, and the first nodes of two adjacent zones.
constexpr uint32_t kChildrenMax = 4;

// Children of a node, in order.
struct Children {
  std::array<uint32_t, kChildrenMax> node = {};
  uint32_t count = 0;
  void add(uint32_t child);
  const uint32_t* begin() const { return node.data(); }
  const uint32_t* end() const { return node.data() + count; }
};

// The neighbours of one node for a piece: partial sums come from `up_from` and go to `up_to`; the
// result comes from `down_from` and goes to `down_to`.
struct PieceRoute {
  Children up_from = {}, down_to = {};
  std::optional<uint32_t> up_to = {}, down_from = {};  // none: this node is the root
};

// The trees of a job.
class Trees {
 public:
  // The zone of each node, numbered from 0 in the order of their first nodes (World::zones()).
  explicit Trees(const std::vector<uint32_t>& zones);
  // `second` chooses one of the two trees.
  PieceRoute route(uint32_t root, bool second, uint32_t node) const;

 private:
  // Nodes have positions, in which those of a zone follow one another.
  std::vector<uint32_t> node_at_, position_of_;
  std::vector<uint32_t> zones_;  // by position
};

PieceRoute ring_route(uint32_t nodes, uint32_t root, uint32_t node);

}  // namespace ff::collective
