// world.cc: names, and the form in which nodes tell each other of themselves: little-endian
// numbers, and texts behind their length.
#include "reduce/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace ff::reduce {

namespace {

constexpr uint32_t kTextMax = 256;

void append_text(std::string& to, std::string_view text) {
  append_le(to, static_cast<uint32_t>(std::min<size_t>(text.size(), kTextMax)));
  to += text.substr(0, kTextMax);
}

class Reader {
 public:
  explicit Reader(ByteView bytes) : left_(bytes) {}
  template <class T>
  T number() {
    if (left_.size() < sizeof(T)) {
      good_ = false;
      return 0;
    }
    const T value = load_le<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  std::string text() {
    const auto size = number<uint32_t>();
    if (size > kTextMax || size > left_.size()) good_ = false;
    if (!good_) return {};
    const std::string text(as_text(left_.first(size)));
    left_ = left_.subspan(size);
    return text;
  }
  Node node() {
    Node node;
    node.first_rank = number<uint32_t>();
    const auto ranks = number<uint32_t>();
    if (ranks > kWorldRanksMax || ranks > left_.size()) good_ = false;
    for (uint32_t rank = 0; rank < ranks && good_; rank++) {
      node.processes.push_back(number<int32_t>());
    }
    node.zone = number<uint32_t>();
    node.host = printable(text());
    node.listens.host = text();
    node.listens.port = number<uint16_t>();
    if (node.processes.empty()) good_ = false;
    return node;
  }
  bool good() const { return good_; }
  bool at_end() const { return good_ && left_.empty(); }

 private:
  ByteView left_;
  bool good_ = true;
};

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
  Reader reader(bytes);
  Node node = reader.node();
  if (!reader.at_end()) return fail(Errc::corrupt, "a node does not say what it is");
  return node;
}

std::string encode_world(const World& world) {
  std::string bytes;
  append_le(bytes, static_cast<uint32_t>(world.nodes.size()));
  for (const Node& node : world.nodes) bytes += encode_node(node);
  return bytes;
}

Result<World> parse_world(ByteView bytes) {
  Reader reader(bytes);
  World world;
  const auto count = reader.number<uint32_t>();
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < count && reader.good(); i++) {
    world.nodes.push_back(reader.node());
    if (world.nodes.back().first_rank != ranks) {
      return fail(Errc::corrupt, "the table of nodes has gaps");
    }
    ranks += world.nodes.back().ranks();
  }
  if (!reader.at_end() || world.nodes.empty()) {
    return fail(Errc::corrupt, "the table of nodes is not whole");
  }
  return world;
}

}  // namespace ff::reduce
