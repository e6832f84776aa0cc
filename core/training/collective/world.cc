// world.cc: names, and the encoding of nodes: little-endian numbers, texts after their length.
#include "training/collective/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/simd/digest.h"
#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

constexpr uint32_t kTextMax = 256;

void append_text(std::string& to, std::string_view text) {
  append_le(to, static_cast<uint32_t>(std::min<size_t>(text.size(), kTextMax)));
  to += text.substr(0, kTextMax);
}

std::string read_text(MessageReader& reader) {
  const auto size = reader.read<uint32_t>();
  if (size > kTextMax) reader.set_malformed();
  return std::string(as_text(reader.read_bytes(size)));
}

WorldNode read_node(MessageReader& reader) {
  WorldNode node;
  node.first_rank = reader.read<uint32_t>();
  const auto ranks = reader.read<uint32_t>();
  if (ranks > kWorldRanksMax || ranks > reader.remaining()) reader.set_malformed();
  for (uint32_t rank = 0; rank < ranks && reader.good(); rank++) {
    node.pids.push_back(reader.read<int32_t>());
  }
  node.zone = printable(read_text(reader));
  node.host = printable(read_text(reader));
  node.address.host = read_text(reader);
  node.address.port = reader.read<uint16_t>();
  if (node.pids.empty()) reader.set_malformed();
  return node;
}

}  // namespace

uint32_t World::ranks() const { return nodes.back().first_rank + nodes.back().ranks(); }

uint32_t World::node_of(uint32_t rank) const {
  const auto after = std::ranges::upper_bound(nodes, rank, {}, &WorldNode::first_rank);
  FF_CHECK(after != nodes.begin());
  return static_cast<uint32_t>(after - nodes.begin() - 1);
}

std::string World::name_of(uint32_t rank) const {
  const WorldNode& node = nodes[node_of(rank)];
  return fmt::format("rank {} (process {} on {})", rank, node.pids[rank - node.first_rank],
                     node.host);
}

std::vector<uint32_t> World::zones() const {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<uint32_t> zones;
  for (const WorldNode& node : nodes) {
    const auto next = static_cast<uint32_t>(numbers.size());
    zones.push_back(numbers.try_emplace(node.zone, next).first->second);
  }
  return zones;
}

uint64_t World::mark() const {
  std::string bytes;
  for (const WorldNode& node : nodes) {
    append_le(bytes, node.first_rank);
    append_le(bytes, node.address.port);
    for (const int32_t pid : node.pids) append_le(bytes, pid);
  }
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(bytes)).digest;
  return load_le<uint64_t>(digest.bytes.data());
}

std::string encode_node(const WorldNode& node) {
  std::string bytes;
  append_le(bytes, node.first_rank);
  append_le(bytes, node.ranks());
  for (const int32_t pid : node.pids) append_le(bytes, pid);
  append_text(bytes, node.zone);
  append_text(bytes, node.host);
  append_text(bytes, node.address.host);
  append_le(bytes, node.address.port);
  return bytes;
}

Result<WorldNode> parse_node(ByteView bytes) {
  MessageReader reader(bytes);
  WorldNode node = read_node(reader);
  if (!reader.at_end()) return fail(Errc::corrupt, "the description of a node is malformed");
  return node;
}

std::string encode_world(const World& world) {
  std::string bytes;
  append_le(bytes, static_cast<uint32_t>(world.nodes.size()));
  for (const WorldNode& node : world.nodes) bytes += encode_node(node);
  return bytes;
}

Result<World> parse_world(ByteView bytes) {
  MessageReader reader(bytes);
  World world;
  const auto count = reader.read<uint32_t>();
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < count && reader.good(); i++) {
    world.nodes.push_back(read_node(reader));
    if (world.nodes.back().first_rank != ranks) {
      return fail(Errc::corrupt, "the table of nodes has gaps");
    }
    ranks += world.nodes.back().ranks();
  }
  if (!reader.at_end() || world.nodes.empty()) {
    return fail(Errc::corrupt, "the table of nodes is incomplete");
  }
  return world;
}

}  // namespace ff::collective
