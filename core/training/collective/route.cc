// route.cc: trees by the bits of a node's number, and a circle.
#include "training/collective/route.h"

#include <algorithm>
#include <bit>

#include "platform/base/check.h"

namespace ff::collective {

namespace {

// Neighbours in a tree.
struct TreePlaces {
  Below below = {};
  std::optional<uint32_t> above = {};
};

// The tree over 1 to `last` in which a number's lowest bit tells how far it is from the leaves; 0
// is above all.
TreePlaces in_order_tree(uint32_t last, uint32_t number) {
  TreePlaces found;
  if (number == 0) {
    if (last > 0) found.below.add(std::bit_floor(last));
    return found;
  }
  const uint32_t bit = number & -number;
  const uint32_t up = (number ^ bit) | bit << 1;
  found.above = up <= last ? up : number ^ bit;
  if (bit == 1) return found;
  found.below.add(number - bit / 2);
  for (uint32_t step = bit / 2; step > 0; step /= 2) {
    if (number + step > last) continue;
    found.below.add(number + step);
    break;
  }
  return found;
}

// In the second tree each node stands where its mirror image, or where that has the same lowest
// bit, its neighbour stands in the first one.
uint32_t to_second(uint32_t last, uint32_t number) {
  if (number == 0) return 0;
  if (last % 2 == 0) return last + 1 - number;
  return number == last ? 1 : number + 1;
}
uint32_t from_second(uint32_t last, uint32_t place) {
  if (place == 0) return 0;
  if (last % 2 == 0) return last + 1 - place;
  return place == 1 ? last : place - 1;
}

// Of nodes 0 to count - 1, with this root.
TreePlaces tree(uint32_t count, uint32_t root, bool second, uint32_t node) {
  const uint32_t last = count - 1;
  const uint32_t number = (node + count - root) % count;
  const auto node_at = [&](uint32_t place) {
    return ((second ? from_second(last, place) : place) + root) % count;
  };
  const TreePlaces places = in_order_tree(last, second ? to_second(last, number) : number);
  TreePlaces found;
  for (const uint32_t place : places.below) found.below.add(node_at(place));
  if (places.above) found.above = node_at(*places.above);
  return found;
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

void Below::add(uint32_t one) {
  FF_CHECK(count < kBelowMax);
  node[count++] = one;
}

Route tree_route(const std::vector<uint32_t>& zones, uint32_t root, bool second, uint32_t node) {
  const auto first_of = [&](uint32_t zone) {
    return static_cast<uint32_t>(std::ranges::find(zones, zone) - zones.begin());
  };
  const auto count_of = [&](uint32_t zone) {
    return static_cast<uint32_t>(std::ranges::count(zones, zone));
  };
  const uint32_t zone = zones[node];
  const uint32_t first = first_of(zone);
  // The root of a zone's own tree: of the others, the node that talks across.
  const uint32_t top = zone == zones[root] ? root : first;
  const TreePlaces own = tree(count_of(zone), top - first, second, node - first);
  Route route;
  for (const uint32_t below : own.below) route.up_from.add(below + first);
  if (own.above) route.up_to = *own.above + first;
  if (node == first) {
    // Zones hang one below the other, away from the root's.
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

Route ring_route(uint32_t nodes, uint32_t root, uint32_t node) {
  const uint32_t before = (node + nodes - 1) % nodes;
  const uint32_t after = (node + 1) % nodes;
  Route route;
  if (before != root) route.up_from.add(before);
  if (node != root) route.up_to = after;
  if (node != root) route.down_from = before;
  if (after != root) route.down_to.add(after);
  return route;
}

}  // namespace ff::collective
