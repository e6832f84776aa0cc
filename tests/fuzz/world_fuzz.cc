// What a rank receives from another host. The table of nodes: no crash; each rank of an accepted
// table has a node and a name without control bytes, and encoding it again gives a table that
// parses. Messages between a successor and a leader: encoding an accepted one gives the same bytes.
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "training/collective/successor_messages.h"
#include "training/collective/world.h"

using namespace ff;
using namespace ff::collective;

std::vector<std::string> fuzz_seeds() {
  World world;
  world.nodes = {{.first_rank = 0, .pids = {10, 11}, .zone = "east", .host = "one"},
                 {.first_rank = 2, .pids = {20}, .zone = "east", .host = "two\x1b"}};
  world.nodes[1].address.host = "10.0.0.2";
  const NodeMembers members{.ranks = 6, .port = 4000};
  return {encode_world(world),
          encode_node(world.nodes[0]),
          encode_hello({.world = 1, .node = 1, .rank = 2}),
          encode_report({.ballot = 2, .mark = 3, .vote = members}),
          encode_decision({.ballot = 2, .nodes = {members, members}}),
          encode_decision({.ballot = 3, .all_joined = true})};
}

namespace {

void read_messages(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  if (const auto hello = parse_hello(bytes)) FF_CHECK(encode_hello(*hello) == text);
  if (const auto report = parse_report(bytes)) FF_CHECK(encode_report(*report) == text);
  if (const auto one = parse_decision(bytes, 2)) FF_CHECK(encode_decision(*one) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  read_messages(bytes);
  if (const auto node = parse_node(bytes)) FF_CHECK(node->ranks() > 0);
  const auto world = parse_world(bytes);
  if (!world) return 0;
  for (uint32_t rank = 0; rank < world->ranks(); rank++) {
    const WorldNode& node = world->nodes[world->node_of(rank)];
    FF_CHECK(rank >= node.first_rank && rank - node.first_rank < node.ranks());
    for (const char c : world->name_of(rank)) FF_CHECK(static_cast<unsigned char>(c) >= 0x20);
  }
  FF_CHECK(world->zones().size() == world->nodes.size());
  FF_CHECK(parse_world(as_bytes(encode_world(*world))).ok());
  return 0;
}
