// split.cc: the ranks of a group in order, and the hosts among them.
#include "training/collective/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "platform/simd/digest.h"

namespace ff::collective {

namespace {

// Ranks of the parent with this color, by key and rank.
std::vector<uint32_t> members_of(std::span<const SplitChoice> choices, uint32_t color) {
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < choices.size(); rank++) {
    if (choices[rank].color == color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {}, [&](uint32_t rank) { return choices[rank].key; });
  return members;
}

}  // namespace

SplitGroup plan_split(const SplitParent& parent, std::span<const SplitChoice> choices,
                      uint32_t rank) {
  const std::vector<uint32_t> members = members_of(choices, choices[rank].color);
  const auto node_of = [&](uint32_t member) {
    return parent.world != nullptr ? parent.world->node_of(members[member]) : 0;
  };
  const auto count = static_cast<uint32_t>(members.size());
  const auto self = static_cast<uint32_t>(std::ranges::find(members, rank) - members.begin());
  uint32_t first = self, end = self + 1;
  while (first > 0 && node_of(first - 1) == node_of(self)) first--;
  while (end < count && node_of(end) == node_of(self)) end++;
  // A short name, however often groups are split.
  const std::string name =
      fmt::format("{} {} {}", parent.self.job, parent.splits, choices[rank].color);
  const auto digest = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(name)).digest.hex();
  SplitGroup group;
  group.self = {.rank = self - first,
                .ranks = end - first,
                .first_rank = first,
                .job = fmt::format("{}-{}", digest, first)};
  if (!parent.network || group.self.ranks == count) return group;
  group.network = parent.network;
  group.network->ranks = count;
  // The node of rank 0 does not know its own address.
  const uint32_t leader = node_of(0);
  if (leader != 0) group.network->at.host = parent.world->nodes[leader].address.host;
  group.network->at.port = static_cast<uint16_t>(choices[members[0]].port);
  return group;
}

}  // namespace ff::collective
