// Which way a piece goes between the nodes of a job: up to one of them, its root, which then has
// the whole sum, and down from there to all.
//
//   tree  two binary trees below the root, in which every other node is a leaf of one and inner in
//         the other, so that each carries half of the pieces (Sanders, Speck, Träff: "Two-tree
//         algorithms for full bandwidth broadcast, reduction and scan", 2009; the Fire-Flyer
//         paper's double binary tree). Each zone has such trees of its own, and only the first
//         nodes of zones that follow one another talk across (paper, section III: two zones).
//   ring  up and down along one circle, with roots taken in turn.
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

// Nodes that a node can have below it: two of its tree, and those of two zones beside its own.
constexpr uint32_t kBelowMax = 4;

// Nodes, in order.
struct Below {
  std::array<uint32_t, kBelowMax> node = {};
  uint32_t count = 0;
  void add(uint32_t one);
  const uint32_t* begin() const { return node.data(); }
  const uint32_t* end() const { return node.data() + count; }
};

// What one node has to do with a piece: partial sums come from `up_from` and go to `up_to`; the
// result comes from `down_from` and goes to `down_to`.
struct Route {
  Below up_from = {}, down_to = {};
  std::optional<uint32_t> up_to = {}, down_from = {};  // none: it is the root
};

// `zones`: the zone of each node; nodes of one zone follow one another. Of two trees, `second` or
// the other.
Route tree_route(const std::vector<uint32_t>& zones, uint32_t root, bool second, uint32_t node);
Route ring_route(uint32_t nodes, uint32_t root, uint32_t node);

}  // namespace ff::collective
