// room.cc: seeds are drawn until one will do.
#include "storage/meta/room.h"

#include <algorithm>
#include <utility>

#include "platform/base/rng.h"

namespace ff::meta {

namespace {

constexpr int kDraws = 16;
constexpr int kDrawsOfOne = 256;  // of a single chain, where nothing else would do

// How much room a chain has, as far as it matters: 0 is none.
int step_of(const Room& room, cluster::ChainId chain) {
  const auto found = room.used.find(chain);
  const uint32_t used = found == room.used.end() ? 0 : found->second;
  if (used >= cluster::kFullPercent) return 0;
  if (used >= cluster::kNearlyFullPercent) return 1;
  return 2 + static_cast<int>((99 - used) / 25);
}

}  // namespace

Room room_of(const cluster::Routing& routing, const cluster::Fill& fill) {
  Room room;
  for (const auto& [key, table] : routing.tables) room.tables[key.first] = table.chains;
  for (const auto& [id, chain] : routing.chains) room.used[id] = percent_of(fill, chain);
  return room;
}

Layout placed(Layout layout, const Room& room) {
  const auto found = room.tables.find(layout.table);
  if (found == room.tables.end() || found->second.empty()) return layout;
  const std::vector<cluster::ChainId>& table = found->second;
  int most = 0;
  for (const cluster::ChainId chain : table) most = std::max(most, step_of(room, chain));
  SeededRng rng(layout.seed);
  Layout best = layout;
  int best_step = -1;
  for (;;) {
    const int draws = layout.stripe <= 1 ? kDrawsOfOne : kDraws;
    for (int i = 0; i < draws && best_step < most; i++) {
      int least = most;
      for (const cluster::ChainId chain : stripe_of(layout, table)) {
        least = std::min(least, step_of(room, chain));
      }
      if (least > best_step) {
        best = layout;
        best_step = least;
      }
      layout.seed = rng.next();
    }
    if (best_step > 0 || most == 0 || layout.stripe <= 1) return best;
    layout.stripe /= 2;
  }
}

}  // namespace ff::meta
