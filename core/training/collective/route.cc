// route.cc: trees from the bits of a node's number, and the ring.
#include "training/collective/route.h"

#include <algorithm>
#include <bit>

#include "platform/base/check.h"

namespace ff::collective {

namespace {

// Neighbours of a node in a tree.
struct TreeLinks {
  Children children = {};
  std::optional<uint32_t> parent = {};
};

// The tree over 1 to `last` in which a number's lowest set bit gives its height above the leaves; 0
// is the root above them.
TreeLinks in_order_tree(uint32_t last, uint32_t number) {
  TreeLinks found;
  if (number == 0) {
    if (last > 0) found.children.add(std::bit_floor(last));
    return found;
  }
  const uint32_t bit = number & -number;
  const uint32_t up = (number ^ bit) | bit << 1;
  found.parent = up <= last ? up : number ^ bit;
  if (bit == 1) return found;
  found.children.add(number - bit / 2);
  for (uint32_t step = bit / 2; step > 0; step /= 2) {
    if (number + step > last) continue;
    found.children.add(number + step);
    break;
  }
  return found;
}

// In the second tree each node has the position that its mirror image has in the first one; where
// that has the same lowest bit, the position of the next node.
uint32_t to_second(uint32_t last, uint32_t number) {
  if (number == 0) return 0;
  if (last % 2 == 0) return last + 1 - number;
  return number == last ? 1 : number + 1;
}
uint32_t from_second(uint32_t last, uint32_t position) {
  if (position == 0) return 0;
  if (last % 2 == 0) return last + 1 - position;
  return position == 1 ? last : position - 1;
}

// The links of `node` in the tree of nodes 0 to count - 1 with this root.
TreeLinks tree(uint32_t count, uint32_t root, bool second, uint32_t node) {
  const uint32_t last = count - 1;
  const uint32_t number = (node + count - root) % count;
  const auto node_at = [&](uint32_t position) {
    return ((second ? from_second(last, position) : position) + root) % count;
  };
  const TreeLinks positions = in_order_tree(last, second ? to_second(last, number) : number);
  TreeLinks found;
  for (const uint32_t one : positions.children) found.children.add(node_at(one));
  if (positions.parent) found.parent = node_at(*positions.parent);
  return found;
}

// Of positions. `zones`: the zone of each; those of a zone follow one another.
PieceRoute tree_route(const std::vector<uint32_t>& zones, uint32_t root, bool second,
                      uint32_t node) {
  const auto first_of = [&](uint32_t zone) {
    return static_cast<uint32_t>(std::ranges::find(zones, zone) - zones.begin());
  };
  const auto count_of = [&](uint32_t zone) {
    return static_cast<uint32_t>(std::ranges::count(zones, zone));
  };
  const uint32_t zone = zones[node];
  const uint32_t first = first_of(zone);
  // The root of the zone's tree; of zones without the root, the node that is linked to other zones.
  const uint32_t top = zone == zones[root] ? root : first;
  const TreeLinks own = tree(count_of(zone), top - first, second, node - first);
  PieceRoute route;
  for (const uint32_t child : own.children) route.up_from.add(child + first);
  if (own.parent) route.up_to = *own.parent + first;
  if (node == first) {
    // Zones form a chain on each side of the root's zone.
    const uint32_t last_zone = zones.back();
    if (zone >= zones[root] && zone < last_zone) route.up_from.add(first_of(zone + 1));
    if (zone <= zones[root] && zone > 0) route.up_from.add(first_of(zone - 1));
    if (zone > zones[root]) route.up_to = first_of(zone - 1);
    if (zone < zones[root]) route.up_to = first_of(zone + 1);
  }
  route.down_to = route.up_from;
  route.down_from = route.up_to;
  return route;
}

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "tree", "ring"};
  return kNames[static_cast<size_t>(algorithm)];
}

std::optional<Algorithm> algorithm_of(std::string_view name) {
  for (const Algorithm one : {Algorithm::automatic, Algorithm::tree, Algorithm::ring}) {
    if (algorithm_name(one) == name) return one;
  }
  return std::nullopt;
}

void Children::add(uint32_t child) {
  FF_CHECK(count < kChildrenMax);
  node[count++] = child;
}

Trees::Trees(const std::vector<uint32_t>& zones) : position_of_(zones.size()), zones_(zones) {
  for (uint32_t node = 0; node < zones.size(); node++) node_at_.push_back(node);
  std::ranges::stable_sort(node_at_, {}, [&](uint32_t node) { return zones[node]; });
  for (uint32_t at = 0; at < zones.size(); at++) position_of_[node_at_[at]] = at;
  std::ranges::sort(zones_);
}

PieceRoute Trees::route(uint32_t root, bool second, uint32_t node) const {
  PieceRoute route = tree_route(zones_, position_of_[root], second, position_of_[node]);
  for (Children* const children : {&route.up_from, &route.down_to}) {
    for (uint32_t i = 0; i < children->count; i++) {
      children->node[i] = node_at_[children->node[i]];
    }
  }
  for (auto* const parent : {&route.up_to, &route.down_from}) {
    if (*parent) *parent = node_at_[**parent];
  }
  return route;
}

PieceRoute ring_route(uint32_t nodes, uint32_t root, uint32_t node) {
  const uint32_t before = (node + nodes - 1) % nodes;
  const uint32_t after = (node + 1) % nodes;
  PieceRoute route;
  if (before != root) route.up_from.add(before);
  if (node != root) route.up_to = after;
  if (node != root) route.down_from = before;
  if (after != root) route.down_to.add(after);
  return route;
}

}  // namespace ff::collective
