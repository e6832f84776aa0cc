// world.cc: names, and the form in which nodes tell each other of themselves: little-endian
// numbers, and texts behind their length.
#include "training/collective/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "training/collective/numbers.h"

namespace ff::collective {

namespace {

constexpr uint32_t kTextMax = 256;

void append_text(std::string& to, std::string_view text) {
  append_le(to, static_cast<uint32_t>(std::min<size_t>(text.size(), kTextMax)));
  to += text.substr(0, kTextMax);
}

std::string text_of(Numbers& numbers) {
  const auto size = numbers.next<uint32_t>();
  if (size > kTextMax) numbers.spoil();
  return std::string(as_text(numbers.take(size)));
}

Node node_of(Numbers& numbers) {
  Node node;
  node.first_rank = numbers.next<uint32_t>();
  const auto ranks = numbers.next<uint32_t>();
  if (ranks > kWorldRanksMax || ranks > numbers.left()) numbers.spoil();
  for (uint32_t rank = 0; rank < ranks && numbers.good(); rank++) {
    node.processes.push_back(numbers.next<int32_t>());
  }
  node.zone = numbers.next<uint32_t>();
  node.host = printable(text_of(numbers));
  node.listens.host = text_of(numbers);
  node.listens.port = numbers.next<uint16_t>();
  if (node.processes.empty()) numbers.spoil();
  return node;
}

}  // namespace

uint32_t World::ranks() const { return nodes.back().first_rank + nodes.back().ranks(); }

uint32_t World::node_of(uint32_t rank) const {
  const auto after = std::ranges::upper_bound(nodes, rank, {}, &Node::first_rank);
  FF_CHECK(after != nodes.begin());
  return static_cast<uint32_t>(after - nodes.begin() - 1);
}

std::string World::name_of(uint32_t rank) const {
  const Node& node = nodes[node_of(rank)];
  return fmt::format("rank {} (process {} on {})", rank, node.processes[rank - node.first_rank],
                     node.host);
}

std::vector<uint32_t> World::zones() const {
  std::vector<uint32_t> zones;
  for (const Node& node : nodes) {
    const bool same = !zones.empty() && node.zone == nodes[zones.size() - 1].zone;
    zones.push_back(zones.empty() ? 0 : zones.back() + (same ? 0 : 1));
  }
  return zones;
}

std::string encode_node(const Node& node) {
  std::string bytes;
  append_le(bytes, node.first_rank);
  append_le(bytes, node.ranks());
  for (const int32_t process : node.processes) append_le(bytes, process);
  append_le(bytes, node.zone);
  append_text(bytes, node.host);
  append_text(bytes, node.listens.host);
  append_le(bytes, node.listens.port);
  return bytes;
}

Result<Node> parse_node(ByteView bytes) {
  Numbers numbers(bytes);
  Node node = node_of(numbers);
  if (!numbers.at_end()) return fail(Errc::corrupt, "a node does not say what it is");
  return node;
}

std::string encode_world(const World& world) {
  std::string bytes;
  append_le(bytes, static_cast<uint32_t>(world.nodes.size()));
  for (const Node& node : world.nodes) bytes += encode_node(node);
  return bytes;
}

Result<World> parse_world(ByteView bytes) {
  Numbers numbers(bytes);
  World world;
  const auto count = numbers.next<uint32_t>();
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < count && numbers.good(); i++) {
    world.nodes.push_back(node_of(numbers));
    if (world.nodes.back().first_rank != ranks) {
      return fail(Errc::corrupt, "the table of nodes has gaps");
    }
    ranks += world.nodes.back().ranks();
  }
  if (!numbers.at_end() || world.nodes.empty()) {
    return fail(Errc::corrupt, "the table of nodes is not whole");
  }
  return world;
}

}  // namespace ff::collective
